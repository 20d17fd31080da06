"""Estimates of a head's weights and memory for every covariance, before the head is made."""

import dataclasses
from typing import Any

import keras

from keras_het import covariances
from keras_het.base.refusal import refusal
from keras_het.base.tables import align_columns
from keras_het.base.validation import check_even_split, check_integer, check_number
from keras_het.integrators import QuasiMonteCarlo
from keras_het.ops.blocking import BLOCK_ELEMENTS, CHUNK_SIZE, MIN_BLOCK_NODES

NOTE = "low_rank is the default; narrow has its form with fewer weights; latent is for very many classes."


@dataclasses.dataclass(frozen=True)
class HeadCost:
    """Number of weights and memory of a head.

    Attributes:
        covariance: name of the covariance; None for a plain Dense layer.
        parameters: number of trainable weights.
        train_bytes: memory of each device in a training step with Adam.
        predict_bytes: memory of each device in a prediction.
        fits: boolean, whether `train_bytes` are within `memory`; None without `memory`.
    """

    covariance: str | None
    parameters: int
    train_bytes: float
    predict_bytes: float
    fits: bool | None


@dataclasses.dataclass(frozen=True)
class CostEstimates:
    """Estimates for every covariance, the first for a Dense layer; they print as a table.

    Attributes:
        rows: list of `HeadCost`.
        sizes: arguments of the estimates, by name.
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

    __repr__ = __str__


def estimate_cost(
    units: int,
    features: int,
    batch: int = 128,
    *,
    num_factors: int = 15,
    num_samples: int | None = None,
    memory: float | None = None,
    devices: int = 1,
) -> CostEstimates:
    """Estimates the weights and memory of each kind of head, and of a Dense layer, before any memory is allocated.

    A training step needs memory for the nodes, for the arrays of a batch and of a block, and 16 bytes per weight: the
    weight, its gradient and Adam's two moments. The backend needs more: TensorFlow and PyTorch briefly use up to twice
    as much. Predictions have no gradients.

    Args:
        units: K, the number of classes.
        features: D, the number of input features.
        batch: B, examples in a training step or a prediction.
        num_factors: R, limited to the number of classes, or of features for a latent head.
        num_samples: S, nodes of QuasiMonteCarlo; None is its default for K.
        memory: bytes for a training step on each device, such as 2e9, or None.
        devices: number of devices that share the classes, on JAX (`keras_het.distribution.layout_map`).
    Raises:
        ValueError: for arguments that are not positive, or devices that cannot share the classes.

    Example:
        >>> dense, diagonal = estimate_cost(1000, 2048).rows[:2]
        >>> dense.parameters, diagonal.covariance, diagonal.parameters
        (2049000, 'diagonal', 4098000)
    """
    check_integer("units", units, 1)
    integrator = QuasiMonteCarlo(num_samples)
    num_samples = integrator.training_nodes(units)
    sizes = {
        "units": units, "features": features, "batch": batch, "num_factors": num_factors, "num_samples": num_samples,
        "devices": devices,
    }  # fmt: skip
    for name, value in sizes.items():
        check_integer(name, value, 1)
    if devices > 1 and keras.config.backend() != "jax":
        rule = f"be 1 on the backend {keras.config.backend()}: devices share classes only on JAX"
        raise refusal("devices", rule, f"devices={devices}")
    check_even_split(units, devices)
    if memory is not None:
        check_number("memory", memory, above=0.0)
    kinds = [None, "diagonal", "low_rank", "narrow", "parameter_efficient", "latent"]
    latent_sizes = {"num_samples": integrator.training_nodes(features)}  # a latent head has nodes of the features
    rows = [_cost(kind, memory, **(sizes | latent_sizes if kind == "latent" else sizes)) for kind in kinds]
    return CostEstimates(rows, sizes)


def _cost(
    covariance: str | None, memory: float | None, units: int, features: int, batch: int, num_factors: int,
    num_samples: int, devices: int,
) -> HeadCost:  # fmt: skip
    is_latent, mean_weights = covariance == "latent", (features + 1) * units
    max_factors = {None: 0, "diagonal": 0, "latent": features}.get(covariance, units)
    factors, size = min(num_factors, max_factors), features if is_latent else units
    noise_weights = 0
    if covariance:
        layer: Any = getattr(covariances, covariance.title().replace("_", ""))()
        layer.num_factors = factors
        noise_weights = layer.count_weights(features, units)
    nodes = num_samples * (size + factors) if covariance else 0
    block = max(units * (MIN_BLOCK_NODES * batch if is_latent else 2 * CHUNK_SIZE), BLOCK_ELEMENTS) if covariance else 0
    # V of each example, its gradient, and the sum over the nodes; only the sum for a V that all examples share.
    factor = batch * size * factors * (1 if covariance == "parameter_efficient" else 3)
    arrays = nodes + (2 if is_latent else 4) * block
    train = 4 * mean_weights + 8 * batch * units + arrays + (0 if is_latent else 4 * noise_weights + factor)
    predict = mean_weights + 2 * batch * units + arrays + (0 if is_latent else noise_weights + factor // 3)
    # Devices do not share the noise of features.
    whole_train, whole_predict = (4 * noise_weights + factor, noise_weights + factor // 3) if is_latent else (0, 0)
    train_bytes, predict_bytes = 4.0 * (whole_train + train / devices), 4.0 * (whole_predict + predict / devices)
    fits = None if memory is None else train_bytes <= memory
    return HeadCost(covariance, mean_weights + noise_weights, train_bytes, predict_bytes, fits)
