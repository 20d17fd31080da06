"""The weights and the memory of a head before it is made, for every covariance."""

import dataclasses
from typing import Any

import keras

from keras_het import covariances
from keras_het.base.refusal import refusal
from keras_het.base.tables import align_columns
from keras_het.base.validation import check_integer, check_number
from keras_het.ops.blocking import BLOCK_ELEMENTS, CHUNK_SIZE, MIN_BLOCK_NODES

NOTE = "low_rank is the default; narrow has its form with fewer weights; latent is for very many classes."


@dataclasses.dataclass(frozen=True)
class HeadCost:
    """The weights and the memory of a head.

    Attributes:
        covariance: the covariance; None for a plain Dense layer.
        parameters: trainable numbers of all maps.
        train_bytes: bytes of each device in a training step by Adam.
        predict_bytes: bytes of each device in a prediction.
        fits: boolean, whether `train_bytes` are within the given memory; None if none was given.
    """

    covariance: str | None
    parameters: int
    train_bytes: float
    predict_bytes: float
    fits: bool | None


@dataclasses.dataclass(frozen=True)
class CostEstimates:
    """The estimates, the first for the Dense layer; it prints as a table.

    Attributes:
        rows: list of `HeadCost`.
        sizes: the arguments of the estimates, by name.
    """

    rows: list[HeadCost]
    sizes: dict[str, int]

    def __str__(self) -> str:
        is_limited = self.rows[0].fits is not None
        cells = [["covariance", "parameters", "training", "prediction", *["fits"] * is_limited]]
        for row in self.rows:
            sizes = (f"{size / 2**20:,.0f} MiB" for size in (row.train_bytes, row.predict_bytes))
            fits = ["yes" if row.fits else "no"] * is_limited
            cells.append([row.covariance or "(Dense)", f"{row.parameters:,}", *sizes, *fits])
        title = (
            "{units} classes, {features} features, batches of {batch}, R={num_factors}, S={num_samples}; memory of "
            "each of {devices} devices"
        )
        return "\n".join([title.format(**self.sizes), *align_columns(cells, left=range(len(cells[0]))), NOTE])

    def __repr__(self) -> str:
        return str(self)


def estimate_cost(
    units: int,
    features: int,
    batch: int = 128,
    *,
    num_factors: int = 15,
    num_samples: int = 256,
    memory: float | None = None,
    devices: int = 1,
) -> CostEstimates:
    """Counts the weights and the memory of each kind of head beside a Dense layer, before any memory is allocated.

    The memory of a training step is the sum of the weights, their gradients and Adam's two moments (16 bytes a weight),
    the nodes, and the arrays of a batch and of a block. The backend's own memory comes on top: TensorFlow and PyTorch
    hold up to twice as much for a moment. Predictions hold no gradients.

    Args:
        units: K, the number of classes.
        features: D, the number of features that the head gets.
        batch: B, examples of a training step, and of a prediction.
        num_factors: R; a head has at most as many as classes, a latent one as many as features.
        num_samples: S, nodes of QuasiMonteCarlo.
        memory: bytes that a training step can have on each device, such as 2e9, or None.
        devices: the number of devices that share the classes, on JAX (`keras_het.distribution.layout_map`).
    Raises:
        ValueError: for arguments that are not positive, or devices that cannot share the classes.

    Example:
        >>> dense, diagonal = estimate_cost(1000, 2048).rows[:2]
        >>> dense.parameters, diagonal.covariance, diagonal.parameters
        (2049000, 'diagonal', 4098000)
    """
    sizes = {
        "units": units, "features": features, "batch": batch, "num_factors": num_factors, "num_samples": num_samples,
        "devices": devices,
    }  # fmt: skip
    for name, value in sizes.items():
        check_integer(name, value, 1)
    if devices > 1:
        _check_shared(units, devices)
    if memory is not None:
        check_number("memory", memory, above=0.0)
    kinds = [None, "diagonal", "low_rank", "narrow", "parameter_efficient", "latent"]
    return CostEstimates([_cost(kind, memory, **sizes) for kind in kinds], sizes)


def _check_shared(units: int, devices: int) -> None:
    """Raises ValueError if devices cannot share the classes: evenly, and on JAX."""
    if keras.config.backend() != "jax":
        rule = f"be 1 on the backend {keras.config.backend()}: devices share classes on JAX alone"
        raise refusal("devices", rule, f"devices={devices}")
    if units % devices:
        more = -(-units // devices) * devices
        raise refusal("units", f"be divisible by the {devices} devices, as {more} is", f"units={units}")


def _cost(
    covariance: str | None, memory: float | None, units: int, features: int, batch: int, num_factors: int,
    num_samples: int, devices: int,
) -> HeadCost:  # fmt: skip
    """Returns the cost of one head; numbers of float32, so 4 bytes each."""
    is_latent, of_mean = covariance == "latent", (features + 1) * units
    most = {None: 0, "diagonal": 0, "latent": features}.get(covariance, units)
    factors, size = min(num_factors, most), features if is_latent else units
    of_noise = _noise_weights(covariance, factors, features, units) if covariance else 0
    nodes = num_samples * (size + factors) if covariance else 0
    block = max(units * (MIN_BLOCK_NODES * batch if is_latent else 2 * CHUNK_SIZE), BLOCK_ELEMENTS) if covariance else 0
    # V of each example, its gradient, and the sum over the nodes; of a V that all examples share the sum alone.
    factor = batch * size * factors * (1 if covariance == "parameter_efficient" else 3)
    held = nodes + (2 if is_latent else 4) * block
    train = 4 * of_mean + 8 * batch * units + held + (0 if is_latent else 4 * of_noise + factor)
    predict = of_mean + 2 * batch * units + held + (0 if is_latent else of_noise + factor // 3)
    # Every device has the noise of the features as a whole.
    whole_train, whole_predict = (4 * of_noise + factor, of_noise + factor // 3) if is_latent else (0, 0)
    train_bytes, predict_bytes = 4.0 * (whole_train + train / devices), 4.0 * (whole_predict + predict / devices)
    fits = None if memory is None else train_bytes <= memory
    return HeadCost(covariance, of_mean + of_noise, train_bytes, predict_bytes, fits)


def _noise_weights(covariance: str, num_factors: int, features: int, units: int) -> int:
    kind = getattr(covariances, covariance.title().replace("_", ""))
    layer: Any = kind()
    layer.num_factors = num_factors
    return layer.count_weights(features, units)
