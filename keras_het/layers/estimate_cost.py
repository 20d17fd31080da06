"""The costs of a head before it is made: weights, operations, memory and time, for every covariance and integrator."""

import dataclasses
from typing import NamedTuple

import keras

from keras_het import covariances
from keras_het.base.refusal import refusal
from keras_het.base.tables import aligned
from keras_het.base.validation import check_integer, check_number
from keras_het.ops.blocking import BLOCK_ELEMENTS, CHUNK_SIZE, FEWEST_NODES


@dataclasses.dataclass(frozen=True)
class HeadCost:
    """The costs of a head.

    Attributes:
        covariance, link, integrator: its choices, as the head takes them; None for a plain Dense layer. The links with
            a closed form cost the same; the first stands for all.
        nodes: the number of nodes that the integrator takes, 0 for none.
        parameters: trainable numbers of all maps.
        flops: operations of each device in a training step: the operations of its matrix products, plus, for all other
            work, as many such operations as take the same time.
        train_bytes, predict_bytes: bytes of each device, for weights, gradients, optimizer and the largest intermediate
            results.
        train_time, predict_time: times of a step and of a prediction, as multiples of the Dense layer's times.
        fits: boolean, whether `train_bytes` are within the memory that was given; None if none was.
    """

    covariance: str | None
    link: str | None
    integrator: str | None
    nodes: int
    parameters: int
    flops: float
    train_bytes: float
    predict_bytes: float
    train_time: float
    predict_time: float
    fits: bool | None


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes that costs are estimated for: K, D, B, R and S, and the devices that share the classes."""

    units: int
    features: int
    batch: int
    num_factors: int
    num_samples: int
    devices: int = 1


@dataclasses.dataclass(frozen=True)
class CostEstimates:
    """The estimates, the first for the Dense layer; it prints as a table.

    Attributes:
        rows: list of `HeadCost`.
        sizes: the sizes that the estimates are for.
        backend: whose times they are.
    """

    rows: list[HeadCost]
    sizes: Sizes
    backend: str

    def __str__(self) -> str:
        known = self.rows[0].fits is not None
        cells = [
            [
                "covariance",
                "link",
                "integrator",
                "parameters",
                "training",
                "predict",
                "step",
                "predict",
                *["fits"] * known,
            ]
        ]
        for row in self.rows:
            names = [
                row.covariance or "(Dense)",
                row.link or "",
                f"{row.integrator or ''}{f'({row.nodes})' if row.nodes else ''}",
            ]
            bytes_of = [
                f"{row.parameters:,}",
                *(f"{size / 2**20:,.0f} MiB" for size in (row.train_bytes, row.predict_bytes)),
            ]
            times = [f"{row.train_time:.1f} x Dense", f"{row.predict_time:.1f} x Dense"]
            cells.append([*names, *bytes_of, *times, *["yes" if row.fits else "no"] * known])
        sizes = self.sizes
        shared = f", shared by {sizes.devices} devices: memory of each" if sizes.devices > 1 else ""
        head = (
            f"{sizes.units} classes, {sizes.features} features, batches of {sizes.batch}, R={sizes.num_factors}, "
            f"S={sizes.num_samples}; {self.backend} on a processor{shared}"
        )
        return "\n".join([head, *aligned(cells, left=range(len(cells[0]))), *NOTES])

    def __repr__(self) -> str:
        return str(self)


NOTES = (
    (
        "low_rank with softmax and QuasiMonteCarlo is the default; narrow has its form with fewer weights. Every link "
        "but softmax has a ClosedForm, at the same cost."
    ),
    (
        "Taylor is for predictions: do not train with it. latent saves weights and memory where classes are very many, "
        "not time."
    ),
)


class _Costs(NamedTuple):
    """Costs of a logit, or of a logit at a node, in matrix product operations that take as long.

    Attributes:
        train, predict: costs of training, and of a prediction.
        arrays: number of arrays of the size of a block, held at once.
        fixed: bytes beside them.
    """

    train: float
    predict: float
    arrays: int = 0
    fixed: int = 0


# Fitted to measurements of `benchmarks/cost/estimate.py`, by backend, per logit and node; Taylor and ClosedForm have
# no nodes.
_COSTS = {
    "jax": {
        "QuasiMonteCarlo": _Costs(120, 280, 4, 48 << 20),
        "Taylor": _Costs(500, 500), "ClosedForm": _Costs(1500, 1000),
    },
    "tensorflow": {
        "QuasiMonteCarlo": _Costs(290, 250, 30),
        "Taylor": _Costs(500, 500), "ClosedForm": _Costs(1500, 1000),
    },
    "torch": {
        "QuasiMonteCarlo": _Costs(900, 900, 8),
        "Taylor": _Costs(3000, 1000), "ClosedForm": _Costs(2e4, 5e3),
    },
}  # fmt: skip
_WEIGHT_BYTES = {
    "jax": 18.0,
    "tensorflow": 28.0,
    "torch": 26.0,
}  # of a weight in a step by Adam: 16 that stay, and the rest during the step
_PROGRAM_BYTES = 60 << 20
_FLOPS_PER_BYTE = 10.0  # of a processor: operations in the time that reading a byte takes
_COVARIANCES = {
    "diagonal": covariances.Diagonal,
    "low_rank": covariances.LowRank,
    "narrow": covariances.Narrow,
    "parameter_efficient": covariances.ParameterEfficient,
    "latent": covariances.Latent,
}


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
    """Estimates the cost of each kind of head beside a Dense layer, before any memory is allocated.

    Times are rough, and for a processor: `benchmarks/cost/estimate.py` compares them with measured ones. An accelerator
    speeds up matrix products more than all else. Memory is for a training step by Adam; the backend's own memory comes
    on top.

    Args:
        units: K, the number of classes.
        features: D, the number of features that the head gets.
        batch: B, examples of a training step, and of a prediction.
        num_factors: R; a head takes at most the number of classes, a latent one the number of features.
        num_samples: S, nodes of QuasiMonteCarlo.
        memory: bytes that a training step may take on each device, such as 2e9, or None.
        devices: the number of devices that share the classes, on JAX (`keras_het.distribution.layout_map`). Memory and
            operations are of each, without some 100 MiB for the program of a process; times are multiples of the time
            of a Dense layer that they share.
    Returns:
        `CostEstimates`, which prints as a table.
    Raises:
        ValueError: for arguments that are not positive, devices that cannot share the classes, or a backend that only
            predicts.

    Example:
        >>> dense, diagonal = estimate_cost(1000, 2048).rows[:2]
        >>> dense.parameters, diagonal.covariance, diagonal.parameters
        (2049000, 'diagonal', 4098000)
    """
    sizes = Sizes(units, features, batch, num_factors, num_samples, devices)
    for name, value in vars(sizes).items():
        check_integer(name, value, 1)
    if devices > 1:
        check_shared(units, devices)
    if memory is not None:
        check_number("memory", memory, above=0.0)
    if keras.config.backend() not in _COSTS:
        rule = f"be one of {', '.join(_COSTS)}, on which Keras trains"
        raise refusal("The backend", rule, f"the backend {keras.config.backend()!r}")
    costs = _COSTS[keras.config.backend()]
    heads = [(covariance, integrator) for covariance in _COVARIANCES for integrator in costs]
    dense = _dense(sizes, memory)
    rows = [
        dense,
        *(_head(sizes, covariance, integrator, costs[integrator], memory) for covariance, integrator in heads),
    ]
    relative = [
        dataclasses.replace(
            row, train_time=row.train_time / dense.train_time, predict_time=row.predict_time / dense.predict_time
        )
        for row in rows
    ]
    return CostEstimates(relative, sizes, keras.config.backend())


def _dense(sizes: Sizes, memory: float | None) -> HeadCost:
    parameters = (sizes.features + 1) * sizes.units
    return _estimate(
        sizes, (None, None, None, 0), parameters, _Costs(0, 0), 4 * 4.0 * sizes.batch * sizes.units, memory
    )


def check_shared(units: int, devices: int) -> None:
    """Raises a ValueError if devices cannot share the classes: evenly, and on JAX."""
    if keras.config.backend() != "jax":
        rule = f"be 1 on the backend {keras.config.backend()}: devices share classes on JAX alone"
        raise refusal("devices", rule, f"devices={devices}")
    if units % devices:
        more = -(-units // devices) * devices
        raise refusal("units", f"be divisible by the {devices} devices, as {more} is", f"units={units}")


def _head(sizes: Sizes, covariance: str, integrator: str, costs: _Costs, memory: float | None) -> HeadCost:
    """Costs of a head; times not yet relative."""
    most = {"diagonal": 0, "latent": sizes.features}.get(covariance, sizes.units)
    num_factors, logits = min(sizes.num_factors, most), sizes.batch * sizes.units
    layer = _COVARIANCES[covariance]()
    layer.num_factors = num_factors
    of_noise = layer.count_weights(sizes.features, sizes.units)
    parameters = (sizes.features + 1) * sizes.units + of_noise
    nodes = sizes.num_samples if integrator == "QuasiMonteCarlo" else 0
    if nodes:  # products of every node, and elementwise work
        of_factor = dict.fromkeys(("low_rank", "narrow"), 2.0 * num_factors)
        products = {**of_factor, "latent": 2.0 * sizes.features}.get(covariance, 0.0)
        block = sizes.units * max(
            FEWEST_NODES * sizes.batch if covariance == "latent" else 2 * CHUNK_SIZE, BLOCK_ELEMENTS // sizes.units
        )
        arrays = costs.arrays // 2 if covariance == "latent" else costs.arrays
        table = nodes * ((sizes.features if covariance == "latent" else sizes.units) + num_factors)
        held = 4.0 * (arrays * min(block, nodes * logits) + table) + costs.fixed
    else:  # products of the variances
        products = 2.0 * num_factors * (sizes.features if covariance == "latent" else 2.0)
        held = 12.0 * logits * (num_factors if covariance == "latent" else 1)
    factor = 9.0 * logits * num_factors if covariance in ("low_rank", "narrow") else 0.0
    held += factor + logits * (40.0 if covariance in ("diagonal", "latent") else 80.0)
    times = max(1, nodes) * logits
    beyond = _Costs(times * (costs.train + (4.0 if nodes else 3.0) * products), times * (costs.predict + products))
    link = "normalized_sigmoid" if integrator == "ClosedForm" else "softmax"
    # The noise of features is whole on every device.
    whole = (of_noise, 12.0 * sizes.batch * num_factors * sizes.features) if covariance == "latent" else (0, 0.0)
    return _estimate(sizes, (covariance, link, integrator, nodes), parameters, beyond, held, memory, whole)


def _estimate(
    sizes: Sizes,
    names: tuple[str | None, str | None, str | None, int],
    parameters: int,
    beyond: _Costs,
    held: float,
    memory: float | None,
    whole: tuple[int, float] = (0, 0.0),
) -> HeadCost:
    """Adds all costs; a map costs its operations or reading its weights, the longer of the two.

    The devices share all but `whole`: weights, and bytes held.
    """
    train, predict = max(6.0 * sizes.batch, 40.0 * _FLOPS_PER_BYTE), max(2.0 * sizes.batch, 4.0 * _FLOPS_PER_BYTE)
    weights = whole[0] + (parameters - whole[0]) / sizes.devices
    bytes_held = whole[1] + (_PROGRAM_BYTES + held) / sizes.devices
    train_bytes = _WEIGHT_BYTES[keras.config.backend()] * weights + bytes_held
    return HeadCost(
        *names,
        parameters,
        6.0 * sizes.batch * weights + beyond.train / sizes.devices,
        train_bytes,
        4.0 * weights + bytes_held,
        train * weights + beyond.train / sizes.devices,
        predict * weights + beyond.predict / sizes.devices,
        None if memory is None else train_bytes <= memory,
    )
