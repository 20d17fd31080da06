"""What a head costs before it is made: weights, operations, memory and time, for every kind of covariance and integrator."""

import math
from typing import Any, NamedTuple

from keras_het import covariances
from keras_het.ops.blocking import BLOCK_ELEMENTS, CHUNK_SIZE
from keras_het.validation import check_integer, check_number


class Estimate(NamedTuple):
    """The costs of a head.

    covariance, link, integrator: its choices, by name; None for a plain Dense layer. Every link with a closed form costs what this one
        does.
    parameters: trainable numbers, all maps together.
    flops: operations of the matrix products of a training step, and what all else takes in units of these.
    train_bytes, predict_bytes: of weights, gradients, optimizer and the largest intermediate results.
    train_time, predict_time: multiples of those of the Dense layer.
    fits: whether `train_bytes` are within the memory that was given; None if none was.
    """

    covariance: str | None
    link: str | None
    integrator: str | None
    parameters: int
    flops: float
    train_bytes: float
    predict_bytes: float
    train_time: float
    predict_time: float
    fits: bool | None


class Plan(NamedTuple):
    """The estimates, that of the Dense layer first; `str(plan)` is a table."""

    rows: list[Estimate]

    def __str__(self) -> str:
        cells = [["covariance", "link", "integrator", "parameters", "GFLOP", "MiB training", "MiB predict", "step", "predict", "fits"]]
        for row in self.rows:
            names = [row.covariance or "(Dense)", row.link or "", row.integrator or ""]
            sizes = [f"{row.parameters:,}", f"{row.flops / 1e9:.3g}", f"{row.train_bytes / 2**20:.0f}", f"{row.predict_bytes / 2**20:.0f}"]
            fits = {None: "", True: "yes", False: "no"}[row.fits]
            cells.append([*names, *sizes, f"{row.train_time:.1f} x", f"{row.predict_time:.1f} x", fits])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells)


class _Costs(NamedTuple):
    """Of a logit, in operations of a matrix product, which is how long they take on a processor: in training, and in a prediction.

    at_nodes: whether for each node.
    """

    train: float
    predict: float
    at_nodes: bool


# Fitted to `benchmarks/plan.py`.
_INTEGRATORS = {
    "QuasiMonteCarlo": _Costs(350.0, 120.0, True),
    "OwnNoise": _Costs(3000.0, 1000.0, True),
    "Taylor": _Costs(2000.0, 500.0, False),
    "ClosedForm": _Costs(6000.0, 2000.0, False),
}
_LINKS = {"ClosedForm": "normalized_sigmoid"}
_FLOPS_PER_BYTE = 10.0  # of a processor: matrix products in the time of reading a byte
_OWN_NODES = 16
_ARRAYS = 8  # of the size of a block that are held at once


def plan(
    units: int, features: int, batch: int = 128, *, num_factors: int = 15, num_samples: int = 256, memory: float | None = None
) -> Plan:
    """What each kind of head would cost, beside a Dense layer: to choose one before any memory is allocated.

    Times are those of a processor, within a factor of two or so (`benchmarks/plan.py` compares them with measured ones): an accelerator
    is faster at matrix products than at all else. Memory is beside what the backend takes for itself, with Adam.

    Args:
        units: K, the number of classes.
        features: D, of the input of the head.
        batch: B, examples of a training step, and of a prediction.
        num_factors: R.
        num_samples: S, nodes of QuasiMonteCarlo.
        memory: bytes that a training step may take, or None.
    Returns: `Plan`.
    Raises: ValueError for arguments that are not positive.

    Example:
        >>> dense, diagonal = plan(1000, 2048).rows[:2]
        >>> dense.parameters, diagonal.covariance, diagonal.parameters
        (2049000, 'diagonal', 4098000)
    """
    for name, value in (("units", units), ("features", features), ("batch", batch), ("num_factors", num_factors)):
        check_integer(name, value, 1)
    check_integer("num_samples", num_samples, 1)
    if memory is not None:
        check_number("memory", memory, above=0.0)
    sizes = _Sizes(units, features, batch, min(num_factors, units), num_samples)
    dense = _times(sizes, (features + 1) * units, 0.0, 0.0)
    rows = [_estimate(sizes, None, None, dense, memory)]
    for covariance in ("diagonal", "low_rank", "parameter_efficient", "latent"):
        for integrator in _INTEGRATORS:
            if (covariance, integrator) != ("latent", "OwnNoise"):
                rows.append(_estimate(sizes, covariance, integrator, dense, memory))
    return Plan(rows)


class _Sizes(NamedTuple):
    units: int
    features: int
    batch: int
    num_factors: int
    num_samples: int


def _estimate(sizes: _Sizes, covariance: str | None, integrator: str | None, dense: tuple[float, float], memory: float | None) -> Estimate:
    parameters = (sizes.features + 1) * sizes.units
    train = predict = 0.0
    if covariance is not None and integrator is not None:
        factors = {} if covariance == "diagonal" else {"num_factors": _factors(sizes, covariance)}
        layer: Any = covariances.get(covariance).__class__(**factors)
        parameters += layer.count_weights(sizes.features, sizes.units)
        train, predict = _beyond_maps(sizes, covariance, integrator)
    times = _times(sizes, parameters, train, predict)
    held = _held(sizes, covariance, integrator)
    train_bytes = 16.0 * parameters + held
    return Estimate(
        covariance,
        None if integrator is None else _LINKS.get(integrator, "softmax"),
        integrator,
        parameters,
        6.0 * sizes.batch * parameters + train,
        train_bytes,
        4.0 * parameters + held,
        times[0] / dense[0],
        times[1] / dense[1],
        None if memory is None else train_bytes <= memory,
    )


def _factors(sizes: _Sizes, covariance: str) -> int:
    return min(sizes.num_factors, sizes.features) if covariance == "latent" else sizes.num_factors


def _times(sizes: _Sizes, parameters: int, train: float, predict: float) -> tuple[float, float]:
    """Of a training step and a prediction: the maps are bound by operations or by memory, all else is added."""
    maps = max(6.0 * sizes.batch, 40.0 * _FLOPS_PER_BYTE), max(2.0 * sizes.batch, 4.0 * _FLOPS_PER_BYTE)
    return maps[0] * parameters + train, maps[1] * parameters + predict


def _beyond_maps(sizes: _Sizes, covariance: str, integrator: str) -> tuple[float, float]:
    """Operations besides those of the maps: of every node, or of the variances of a closed form."""
    costs, logits, factors = _INTEGRATORS[integrator], sizes.batch * sizes.units, _factors(sizes, covariance)
    if costs.at_nodes:
        nodes = _OWN_NODES if integrator == "OwnNoise" else sizes.num_samples
        products = {"low_rank": 2.0 * factors, "latent": 2.0 * sizes.features}.get(covariance, 0.0)
        return nodes * logits * (costs.train + 4.0 * products), nodes * logits * (costs.predict + products)
    variances = 2.0 * factors * sizes.features if covariance == "latent" else 4.0 * factors
    return logits * (costs.train + 3.0 * variances), logits * (costs.predict + variances)


def _held(sizes: _Sizes, covariance: str | None, integrator: str | None) -> float:
    """Bytes of the largest intermediate results."""
    logits = 4.0 * sizes.batch * sizes.units
    if covariance is None or integrator is None:
        return 4.0 * logits
    factor = {"low_rank": 3.0 * logits * sizes.num_factors, "latent": 12.0 * sizes.batch * sizes.features * sizes.num_factors}
    block = 0.0
    if _INTEGRATORS[integrator].at_nodes:
        block = 4.0 * _ARRAYS * max(min(BLOCK_ELEMENTS, sizes.num_samples * logits / 4.0), 2.0 * CHUNK_SIZE * sizes.units)
    elif covariance == "latent":
        block = 3.0 * logits * _factors(sizes, covariance)
    return 20.0 * logits + factor.get(covariance, 0.0) + math.ceil(block)
