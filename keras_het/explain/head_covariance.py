"""Classes that a head confuses: the covariance of its logits over a data set, and pairs of classes beyond chance."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_class_names, check_integer
from keras_het.explain.drawing import axes_or_new, palette, remove_frame, shorten
from keras_het.reading.head_noise import MeanNoise, average_noise

MAX_BARS = 20
POSITIVE_MEANING, NEGATIVE_MEANING = "rise and fall together", "one or the other"


@dataclasses.dataclass(frozen=True)
class ConfusedPair:
    """Two classes, by name or number, and the covariance of their logits.

    Attributes:
        first, second: the classes.
        covariance: covariance of their logits, in temperatures squared. Positive: the logits rise and fall together, so
            either both classes are plausible for an example or neither is. Negative: one logit rises when the other
            falls, so the label is one class or the other.
        correlation: correlation of their logits, in [-1, 1].
    """

    first: Any
    second: Any
    covariance: float
    correlation: float


class ConfusedPairs(list[ConfusedPair]):
    """A list of `ConfusedPair`, the largest covariance first."""

    def plot(self, ax: Any = None) -> Any:
        """Draws the covariances of the first 20 pairs as bars, coloured by sign.

        Args:
            ax: Matplotlib axes; None makes a figure.
        Returns:
            the axes.
        Raises:
            ImportError: without Matplotlib.

        Example:
            >>> len(ConfusedPairs([ConfusedPair("cat", "dog", -0.5, -0.9)]).plot().patches)
            1
        """
        ax, pairs = axes_or_new(ax), self[:MAX_BARS]
        count = f", {len(pairs)} of {len(self)}" if len(self) > len(pairs) else ""
        ax.set_title(f"Pairs of classes that share noise{count}")
        if not pairs:
            ax.set_axis_off()
            ax.text(0.5, 0.5, "no pair of classes is beyond chance", ha="center", transform=ax.transAxes)
            return ax
        blue, orange = palette()  # the colours of the report's heat map
        for sign, color, meaning in ((1, orange, POSITIVE_MEANING), (-1, blue, NEGATIVE_MEANING)):
            rows = [row for row, pair in enumerate(pairs) if np.sign(pair.covariance) == sign]
            widths = [pairs[row].covariance for row in rows]
            ax.barh(rows, widths, color=color, label=meaning if rows else None)
        names = [f"{shorten(pair.first)} - {shorten(pair.second)}" for pair in pairs]
        ax.set_yticks(range(len(pairs)), names, parse_math=False)
        ax.set(ylim=(max(4, len(pairs)) - 0.4, -0.6), xlabel="covariance, in temperatures squared")
        ax.axvline(0, color=ax.title.get_color(), linewidth=0.8)
        ax.legend(loc="upper right", bbox_to_anchor=(1, -0.14), ncols=2, frameon=False)
        remove_frame(ax)
        return ax


def covariance(model: keras.Model, x: Any, *, layer: str | None = None, batch_size: int = 128) -> np.ndarray:
    """Computes the mean covariance of a head's logits over a data set.

        Sigma = mean over x of (diag(d(x)^2) + V(x) V(x)') / temperature^2,
        and for softmax the part that changes probabilities: C Sigma C, C = I - 1 1'/K

    Dividing by the temperature makes heads comparable.

    Args:
        model: functional or Sequential model with a `HeteroscedasticDense`, which other layers can follow.
        x: inputs of the model: arrays, or a data set of batches, whose labels are ignored. Steps of a sequence that a
            Keras mask marks as padding do not count.
        layer: name of the head, if there are several.
        batch_size: batch size of the predictions from arrays.
    Returns:
        `(K, K)`, float64.
    Raises:
        ValueError: for a model without a graph, with several outputs or without such a head, no example, or numbers
            that are not finite.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> head = HeteroscedasticDense(3)
        >>> model = keras.Sequential([keras.Input((4,)), head, keras.layers.Activation("exponential")])
        >>> covariance(model, np.ones((10, 4))).shape
        (3, 3)
    """
    return average_noise(model, x, layer, batch_size).covariance()


def confused_pairs(
    model: keras.Model | Sequence[keras.Model],
    x: Any,
    class_names: Sequence | Mapping | None = None,
    count: int = 10,
    *,
    layer: str | None = None,
    draws: int = 99,
    seed: int = 0,
    batch_size: int = 128,
) -> ConfusedPairs:
    """Returns the pairs of classes whose logits have the largest covariance, beyond chance.

    The test gives every entry of the factor's weights a random sign, `draws` times. This keeps the sizes of the entries
    and destroys the relations between classes. The test compares the covariances that come from the factor alone,
    without the variances of single classes. A pair is returned if its covariance is larger in absolute value than the
    largest covariance of any pair in any draw.

    If the weights are noise (independent, each as likely positive as negative), all signs are equally likely. The
    trained signs then give the largest value with probability 1 / (draws + 1). This is the probability that any pair is
    returned by chance: 1% by default. Classes with large weights can hide a pair of classes with small weights.

    On labels of people, with frozen features, the covariance agreed weakly with the pairs that people confuse, or
    ranked them in the opposite order (`benchmarks/results/real_heads.md`), and better with a penalty. The products of
    the predicted probabilities, `p.T @ p`, agreed best.

    A pair beyond chance need not have flipped labels. Training gives covariances to other pairs as well, which differ
    from run to run. Pass several models, trained with different seeds, to keep only the pairs that all models
    have with the same sign.

    Args:
        model: argument of `covariance`; or a list of models of the same classes, whose covariances and correlations
            are averaged.
        x: argument of `covariance`.
        layer: argument of `covariance`.
        batch_size: argument of `covariance`.
        class_names: K names, a sequence or a dict {class: name}; None for numbers.
        count: largest number of pairs.
        draws: number of draws, at least 1; each costs a product of the factor's weights.
        seed: seed of the draws.
    Returns:
        list of `ConfusedPair`, the largest first, with a method `plot()`; empty for a head without factors.
    Raises:
        ValueError: as for `covariance`, for models of different numbers of classes, for arguments outside these ranges,
            for a head whose noise is in the features, and for a parameter-efficient head with so few factors that
            random signs often change nothing: draws * 2^(1 - R) > 1/2, R below 9 by default.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> model = keras.Sequential([keras.Input((4,)), HeteroscedasticDense(5, num_factors=2, seed=1)])
        >>> kernel = np.random.default_rng(0).normal(size=(4, 5, 2)) * 0.01
        >>> kernel[:, 1], kernel[:, 3] = 1.0, -1.0
        >>> _ = model.layers[0].covariance.factor_layer.kernel.assign(kernel.reshape(4, 10))
        >>> x = np.random.default_rng(1).normal(size=(50, 4))
        >>> pairs = confused_pairs(model, x, ["ant", "bee", "cat", "wasp", "dog"])
        >>> [(pair.first, pair.second, pair.covariance < 0) for pair in pairs]
        [('bee', 'wasp', True)]
    """
    check_integer("count", count, 0)
    check_integer("draws", draws, 1)
    models = [model] if isinstance(model, keras.Model) else list(model)
    refuse_if(not models, "model", "be a model, or a list with at least one", "none")
    noises = [average_noise(each, x, layer, batch_size) for each in models]
    units = [noise.head.units for noise in noises]
    refuse_if(len(set(units)) > 1, "model", "be models of the same classes", f"{', '.join(map(str, units))} classes")
    names = check_class_names(class_names, units[0])
    rng = random_generator(seed)
    results = [_signed_pairs(noise, draws, rng) for noise in noises]
    common = set(results[0]).intersection(*results[1:])
    pairs = [
        (names[i], names[j], *np.mean([result[i, j, sign] for result in results], axis=0).tolist())
        for i, j, sign in sorted(common)
    ]
    ordered = sorted((ConfusedPair(*pair) for pair in pairs), key=lambda pair: -abs(pair.covariance))
    return ConfusedPairs(ordered[:count])


def _signed_pairs(
    noise: MeanNoise, draws: int, rng: np.random.Generator
) -> dict[tuple[int, int, bool], tuple[float, float]]:
    """Returns (covariance, correlation) of each pair beyond chance, by (class, class, is_positive)."""
    if noise.head.covariance.noise_space != "logits":
        rule = "have a head with noise in the logits: for noise in the features use `covariance`"
        raise refusal("model", rule, f"covariance={type(noise.head.covariance).__name__}")
    factor, whole = noise.head.covariance.factor_weights(), noise.covariance()
    if factor.shape[2] and len(factor) == 1 and draws * 2.0 ** (1 - factor.shape[2]) > 0.5:
        raise ValueError(
            "`model` must have more factors in its parameter-efficient head, or `draws` must be smaller: with so few "
            "factors, random signs often change no covariance. Use `covariance` instead. Received: "
            f"num_factors={factor.shape[2]}, draws={draws}"
        )
    first, second = _beyond_chance(noise.shared, factor, whole, draws, rng)
    values, deviations = whole[first, second], np.sqrt(np.diagonal(whole))
    correlations = values / (deviations[first] * deviations[second])
    keys = zip(first.tolist(), second.tolist(), (values > 0).tolist(), strict=True)
    return dict(zip(keys, zip(values.tolist(), correlations.tolist(), strict=True), strict=True))


def _beyond_chance(
    to_shared: Callable[[np.ndarray], np.ndarray], factor: np.ndarray, whole: np.ndarray, draws: int, rng: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the classes of the pairs whose covariance exceeds the largest of all pairs in any draw of signs."""
    rounded, signs = factor.astype("float32"), np.array([-1.0, 1.0], "float32")  # float64 would double the time
    chance = max(_largest_pair(to_shared(rounded * rng.choice(signs, factor.shape))) for _ in range(draws))
    common = to_shared(factor)
    # The margin stops values that exceed chance only by rounding, the product stops pairs whose two covariances differ
    # in sign.
    first, second = np.nonzero(np.triu((np.abs(common) > chance * (1 + 1e-4)) & (common * whole > 0), 1))
    return first, second


def _largest_pair(matrix: np.ndarray) -> float:
    """Returns the largest absolute entry off the diagonal, which becomes zero."""
    np.fill_diagonal(matrix, 0.0)
    return float(max(matrix.max(), -matrix.min()))
