"""Which classes a head confuses: the covariance of its logits over a data set, and pairs of classes beyond chance."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_class_names, check_integer
from keras_het.covariances.block_matrix import BlockMatrix
from keras_het.explain.drawing import axes_or_new, palette, shortened, text_color, without_frame
from keras_het.reading.head_noise import HeadNoise, head_noise

DRAW_BYTES = 512 << 20  # of the weights of draws that are compared at once
MAX_BARS = 20
TOGETHER, EITHER = "rise and fall together", "one or the other"


@dataclasses.dataclass(frozen=True)
class ConfusedPair:
    """Two classes, by name or number, and the covariance of their logits.

    Attributes:
        first, second: the classes.
        covariance: covariance of their logits over temperature. Positive: the two logits rise and fall together, so an
            example that may be one class may be the other, too. Negative: one rises where the other falls, so the label
            is one or the other.
        correlation: the covariance over the standard deviations of both, in [-1, 1].
    """

    first: Any
    second: Any
    covariance: float
    correlation: float


class ConfusedPairs(list[ConfusedPair]):
    """A list of `ConfusedPair`, the largest covariance first."""

    def plot(self, ax: Any = None) -> Any:
        """Draws the covariances of the first 20 pairs as bars; the colour shows the meaning of the sign.

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
        ax, drawn = axes_or_new(ax), self[:MAX_BARS]
        some = f", {len(drawn)} of {len(self)}" if len(self) > len(drawn) else ""
        ax.set_title(f"Pairs of classes that share noise{some}")
        if not drawn:
            ax.set_axis_off()
            ax.text(0.5, 0.5, "no pair of classes is beyond chance", ha="center", transform=ax.transAxes)
            return ax
        blue, orange = palette()
        for sign, color, meaning in ((1, orange, TOGETHER), (-1, blue, EITHER)):  # the colours of the report's heat map
            places = [place for place, pair in enumerate(drawn) if np.sign(pair.covariance) == sign]
            widths = [drawn[place].covariance for place in places]
            ax.barh(places, widths, color=color, label=meaning if places else None)
        names = [f"{shortened(pair.first)} - {shortened(pair.second)}" for pair in drawn]
        ax.set_yticks(range(len(drawn)), names, parse_math=False)
        ax.set(ylim=(max(4, len(drawn)) - 0.4, -0.6), xlabel="covariance, in temperatures, squared")
        ax.axvline(0, color=text_color(), linewidth=0.8)
        ax.legend(loc="upper right", bbox_to_anchor=(1, -0.14), ncols=2, frameon=False)
        without_frame(ax)
        return ax


def covariance(model: keras.Model, x: Any, *, layer: str | None = None, batch_size: int = 128) -> np.ndarray:
    """The mean covariance of a head's logits over a data set, in temperatures, so that heads can be compared.

        Sigma = mean over x of (diag(d(x)^2) + V(x) V(x)') / temperature^2,
        and for softmax the part that it sees: C Sigma C, C = I - 1 1'/K

    Args:
        model: functional or Sequential, with a `HeteroscedasticDense` somewhere, such as before a `NoiseTransition`; it
            does not change.
        x: inputs of the model: arrays, or a data set of batches. Its labels do not count, and neither do the steps of
            a sequence that a Keras mask marks as padding.
        layer: name of the head, if there are several.
        batch_size: size of the batches of the predictions from arrays.
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
    return head_noise(model, x, layer, batch_size).covariance().whole()


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
    """The pairs of classes whose logits have the largest covariance in a model, without pairs that may be chance.

    The test of chance gives every entry of the factor's weights a random sign, `draws` times. The sizes of the entries
    stay, and the relations between classes are lost. The test takes the covariance that the factor gives to a pair,
    without the part that comes from the variances of single classes. A pair is returned if this covariance is larger in
    absolute value than the largest of all pairs in all draws.

    Suppose that the weights are noise: independent, of any size, and each as likely positive as negative. Then all
    signs are equally likely, and the model's own signs give the largest value with probability 1 / (draws + 1). This is
    the probability that any pair is returned by chance, 1% by default. A pair of classes with small weights is not seen
    beside classes with large ones. No matrix `(K, K)` is held.

    A pair beyond chance need not have flipped labels: training gives covariances to other pairs, too, and to different
    pairs from every start. Several models, such as the `members` of an ensemble, return a pair if each of them has it,
    with the same sign. On digits with three pair flips, one model returns these first, and two to four other pairs.
    Four models return only these pairs, at times one less (`benchmarks/results/planted_pairs.md`).

    Args:
        model: argument of `covariance`; or a list of models of the same classes, over which covariances and
            correlations are averaged.
        x: argument of `covariance`.
        layer: argument of `covariance`.
        batch_size: argument of `covariance`.
        class_names: K names, a sequence or a dict {class: name}; None for numbers.
        count: the largest number of pairs.
        draws: integer, at least 1; each takes the time of a product of the factor's weights.
        seed: seed of the draws.
    Returns:
        list of `ConfusedPair`, the largest first, which `plot()` draws; empty for a head without factors.
    Raises:
        ValueError: as for `covariance`, for arguments outside these ranges, for a head whose noise is in the features,
            and for a parameter-efficient head of so few factors that random signs often change nothing: draws
            * 2^(1 - R) > 1/2, R below 9 by default.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> model = keras.Sequential([keras.Input((4,)), HeteroscedasticDense(5, num_factors=2)])
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
    noises = [head_noise(one, x, layer, batch_size) for one in models]
    names = check_class_names(class_names, noises[0].head.units)
    rng = random_generator(seed)
    found = [_signed_pairs(noise, draws, rng) for noise in noises]
    common = set(found[0]).intersection(*found[1:])
    pairs = [
        (names[i], names[j], *np.mean([one[i, j, sign] for one in found], axis=0).tolist())
        for i, j, sign in sorted(common)
    ]
    ordered = sorted((ConfusedPair(*pair) for pair in pairs), key=lambda pair: -abs(pair.covariance))
    return ConfusedPairs(ordered[:count])


def _signed_pairs(
    noise: HeadNoise, draws: int, rng: np.random.Generator
) -> dict[tuple[int, int, bool], tuple[float, float]]:
    """The covariance and correlation of each pair beyond chance, by its numbers and whether they rise together."""
    if noise.head.covariance.noise_of != "logits":
        rule = (
            "have a head whose factor is of the logits: what the kernel of the mean gives pairs of classes in "
            "common is no chance, and no test of it is known; use `covariance`"
        )
        raise refusal("model", rule, f"covariance={type(noise.head.covariance).__name__}")
    factor, whole = noise.head.covariance.factor_weights(), noise.covariance()
    if factor.shape[2] and len(factor) == 1 and draws * 2.0 ** (1 - factor.shape[2]) > 0.5:
        raise ValueError(
            "`model` must have a parameter-efficient head with more factors, or `draws` must be fewer: random signs "
            "leave the product of two rows of so few as it is, so that no pair could be told from chance; use "
            f"`covariance`. Received: num_factors={factor.shape[2]}, draws={draws}"
        )
    chance = _largest_by_chance(noise.shared("float32"), factor, draws, rng)  # float32, for most of the time goes here
    rows, columns, values = _beyond(noise.shared()(factor), whole, chance)
    deviations = np.sqrt(whole.main_diagonal())  # not 0 for classes of a pair
    correlations = values / (deviations[rows] * deviations[columns])
    keys = zip(rows.tolist(), columns.tolist(), (values > 0).tolist(), strict=True)
    return dict(zip(keys, zip(values.tolist(), correlations.tolist(), strict=True), strict=True))


def _largest_by_chance(
    shared_of: Callable[[np.ndarray], BlockMatrix], factor: np.ndarray, draws: int, rng: np.random.Generator
) -> float:
    """The largest entry in absolute value, off the diagonal, of all draws of signs for the weights, `(M, K, R)`."""
    largest, at_once = 0.0, max(1, DRAW_BYTES // max(1, factor.nbytes))
    for start in range(0, draws, at_once):
        matrices = [
            shared_of(factor * rng.choice([-1.0, 1.0], factor.shape)) for _ in range(min(at_once, draws - start))
        ]
        for rows in matrices[0].blocks():
            weight = matrices[0].weight(rows, rows.start)  # does not depend on the signs
            largest = max(
                largest, *(np.abs(np.triu(matrix.rows(rows, rows.start, weight), 1)).max() for matrix in matrices)
            )
    return float(largest)


def _beyond(shared: BlockMatrix, whole: BlockMatrix, chance: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and covariances of the pairs whose covariance in `shared` is beyond chance."""
    parts = [(np.empty(0, int), np.empty(0, int), np.empty(0))]
    for rows in shared.blocks():
        common, values = (np.triu(matrix.rows(rows, rows.start), 1) for matrix in (shared, whole))
        # Without the margin a value equal to chance could pass by rounding; without the product, a pair whose two
        # covariances differ in sign.
        i, j = np.nonzero((np.abs(common) > chance * (1 + 1e-4)) & (common * values > 0))
        parts.append((i + rows.start, j + rows.start, values[i, j]))
    first, second, covariances = (np.concatenate(part) for part in zip(*parts, strict=True))
    return first, second, covariances
