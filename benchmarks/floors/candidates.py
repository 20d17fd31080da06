"""Candidates that may do no harm: the full head with one small change, or two.

A candidate is a way to train; `CANDIDATES` has them by name. `FAMILIES` are choices that a user makes by the likelihood
of noisy validation labels: of one method's strengths of L2, or of two methods.
"""

import functools
from typing import NamedTuple

from keras import ops

from benchmarks.labels import recipe
from keras_het import covariances
from keras_het.ops.low_rank import LowRankNormal

FLOOR = 0.05  # of d, in temperatures: half of its start


class OfPossible(covariances.LowRank):
    """Noise in proportion to the root of the probability of its class: impossible classes have none.

    Args:
        relative: multiply the probabilities by K, and leave those above 1 as they are.
    """

    def __init__(self, *arguments, relative=False, **kwargs):
        super().__init__(*arguments, **kwargs)
        self.relative = relative

    def distribution(self, x, loc):
        """The Gaussian of the logits, with noise by the probabilities without noise."""
        p = ops.stop_gradient(ops.softmax(loc / self.temperature))
        root = ops.sqrt(ops.minimum(self.units * p, 1.0) if self.relative else p)
        normal = super().distribution(x, loc)
        return LowRankNormal(loc, root * normal.scale_diag, root[..., None] * normal.factor, size=self.size)


class Lively(covariances.LowRank):
    """d = sqrt(affine^2 + min_scale^2), whose gradient does not vanish where d is small."""

    def build(self, input_shape):
        """Makes the maps, with the usual d at the start."""
        super().build(input_shape)
        bias = self.scale_diag_layer.bias
        bias.assign(ops.softplus(bias))

    def standard_deviations(self, x):
        """d, `(N, K)`."""
        return ops.sqrt(ops.square(self.scale_diag_layer(x)) + self.min_scale**2)


class Floored(covariances.LowRank):
    """d is at least `FLOOR` temperatures."""

    def bind(self, units, temperature, *arguments):
        """A head takes the covariance, and tells it the temperature."""
        super().bind(units, temperature, *arguments)
        self.min_scale = FLOOR * temperature


HEADS = recipe.HEADS | {
    "of possible classes": (OfPossible, "softmax"),
    "of possible classes, relative": (functools.partial(OfPossible, relative=True), "softmax"),
    "lively diagonal": (Lively, "softmax"),
    "floored diagonal": (Floored, "softmax"),
}


class Candidate(NamedTuple):
    """A way to train.

    Attributes:
        method: Dense, or a name of `HEADS`.
        l2: of all kernels of the network and of the mean.
        noise_l2: of the kernels of the noise.
        rate: the learning rate of the noise, of that of all else.
        initial_scale: of the noise, in temperatures.
        num_factors: R, if there are as many classes.
        first: "" trains all at once. "all" trains a Dense layer for the first half of the time, and a head from its
            best epoch on for the second; "noise" freezes all but the noise there.
    """

    method: str = "full"
    l2: float = 0.0
    noise_l2: float = 0.0
    rate: float = 1.0
    initial_scale: float = 0.15
    num_factors: int = 15
    first: str = ""

    def setting(self, temperature):
        """That of the recipe."""
        shared = {name: getattr(self, name) for name in ("l2", "rate", "initial_scale", "num_factors")}
        return recipe.Setting(self.method, temperature, covariance_l2=self.noise_l2, **shared)


STRENGTHS = (1e-5, 1e-4, 1e-3)
SMALL = 0.015  # a tenth of the usual noise at the start


def _with_l2(name, candidate):
    """One number for all kernels; a Dense layer has it, too."""
    return {f"{name}, L2 {value:g}": candidate._replace(l2=value, noise_l2=value) for value in STRENGTHS}


CANDIDATES = {
    "Dense": Candidate("Dense"),
    "full": Candidate(),
    "narrow, 16": Candidate("narrow, 16"),
    "Dense first, then all": Candidate(first="all"),
    "Dense first, then the noise": Candidate(first="noise"),
    "noise at a third of the rate": Candidate(rate=0.3),
    "noise at a tenth of the rate": Candidate(rate=0.1),
    "noise of possible classes": Candidate("of possible classes"),
    "noise of possible classes, relative": Candidate("of possible classes, relative"),
    "lively diagonal": Candidate("lively diagonal"),
    "floored diagonal": Candidate("floored diagonal"),
    "a tenth of the noise at the start": Candidate(initial_scale=SMALL),
    "three factors": Candidate(num_factors=3),
    "one factor": Candidate(num_factors=1),
    "three factors, narrow": Candidate("narrow, 16", num_factors=3),
    "three factors, a third of the rate": Candidate(num_factors=3, rate=0.3),
    "three factors, Dense first, then all": Candidate(num_factors=3, first="all"),
    **_with_l2("Dense", Candidate("Dense")),
    **_with_l2("full", Candidate()),
    **_with_l2("narrow, 16", Candidate("narrow, 16")),
    **{f"full, L2 of the noise {value:g}": Candidate(noise_l2=value) for value in (1e-3, 1e-2)},
}

FAMILIES = {  # rows of the report: the best of these by the likelihood of noisy validation labels
    **{f"{name}, L2 chosen": [name, *_with_l2(name, Candidate())] for name in ("Dense", "full", "narrow, 16")},
    "Dense or full": ["Dense", "full"],
    "Dense or three factors, narrow": ["Dense", "three factors, narrow"],
}
