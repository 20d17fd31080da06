"""What noisy labels say of the true classes: weights of the examples, by the inverse of T.

If the noise does not depend on the example x given its true class, then for any function f of x and of a class

    E f(x, true) = E sum_i f(x, i) (T^-1)[noisy, i],        T[i, j] = p(noisy j | true i)

so an example counts for every class i with the weight (T^-1)[noisy, i], which may be negative or above one; the weights
of an example sum to one (Natarajan et al. 2013, "Learning with noisy labels", Lemma 1; Patrini et al. 2017, Theorem 1).
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.base.batches import check_same_index
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import as_float64, check_annotations, check_integer, check_labels, check_transitions
from keras_het.label_noise.dawid_skene import DawidSkene
from keras_het.label_noise.estimation import check_distributions
from keras_het.label_noise.label_shares import label_shares
from keras_het.label_noise.matrices import from_confusion
from keras_het.layers import NoiseTransition
from keras_het.ops.transition import condition_number
from keras_het.reading.clean_and_noisy import CleanAndNoisy

ALL = slice(None)
MOST_CONDITION = 100.0  # a fraction of the truth to a hundredth would then take 100 ** 2 times the labels
MOST_ERROR = 0.25  # of T by its counts, in parts of itself: beyond, first order is not enough
ASSUMPTION = "Noise must not depend on the example given its true class; held-out labels alone cannot show that it does"


class Noisy(NamedTuple):
    """Predictions, noisy labels and T, checked.

    Attributes:
        p: probabilities, `(N, K)`, float32 as given or float64.
        labels: integers `(N, M)`, -1 where annotator m gave none; M is 1 for one label each.
        transitions: the estimate of T, `(M, K, K)`.
        inverses: T^-1, `(M, K, K)`.
        redraw: `(generator, counts of the examples) -> T` of another sample; None for a T that is taken for exact.
        origin: origin of T, in words.
    """

    p: np.ndarray
    labels: np.ndarray
    transitions: np.ndarray
    inverses: np.ndarray
    redraw: Callable | None
    origin: str

    @property
    def condition(self) -> float:
        """The largest condition number of the T."""
        return max(map(condition_number, self.transitions))

    def weights(self, inverses: np.ndarray, rows: slice = ALL) -> np.ndarray:
        """How much each example counts for each true class, `(N, K)`; or each of some rows.

        Each of several annotators gives weights by their own T; these are averaged, in proportion to 1 / |T_m^-1|^2.
        """
        labels = self.labels[rows]
        if len(inverses) == 1:
            return inverses[0][labels[:, 0]]
        parts = self.parts(rows)
        return sum(parts[:, [m]] * inverse[labels[:, m]] for m, inverse in enumerate(inverses))

    def parts(self, rows: slice = ALL) -> np.ndarray:
        """The part that each annotator has in the weights of an example, `(N, M)`, rows of sum 1; or of some rows."""
        given = np.where(self.labels[rows] >= 0, 1.0 / np.square(self.inverses).sum(axis=(1, 2)), 0.0)
        return given / given.sum(axis=1, keepdims=True)

    def noise_variance(self) -> np.ndarray:
        """What labels by T add to the variance of the weight for class k, if the true class is i, `(K, K)`, on average.

        Var[(T^-1)[label, k] | true = i] = sum_j T[i, j] (T^-1)[j, k]^2 - (sum_j T[i, j] (T^-1)[j, k])^2
        """
        shares = np.square(self.parts()).mean(axis=0)
        each = (t @ np.square(w) - np.square(t @ w) for t, w in zip(self.transitions, self.inverses, strict=True))
        return np.maximum(sum(share * variance for share, variance in zip(shares, each, strict=True)), 0.0)

    def draws(self, count: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Samples of the examples with replacement: how often each occurs, `(N,)`, and T^-1, `(M, K, K)`.

        T is drawn anew for each if it is uncertain. Its inverse is then taken to first order, W - W (T* - T) W: a draw
        that is nearly singular would count for more than all others.
        """
        inverses, size = self.inverses, len(self.labels)
        for _ in range(count):
            occurs = np.bincount(rng.integers(size, size=size), minlength=size)
            if self.redraw is None:
                yield occurs, inverses
            else:
                change = self.redraw(rng, occurs) - self.transitions
                yield occurs, inverses - inverses @ change @ inverses

    def explain(self) -> list[tuple[str, str]]:
        """What every result rests on, as (title, text)."""
        condition = f"condition number {self.condition:.3g}: errors of the noisy shares grow up to so much"
        return [("assumption", f"{ASSUMPTION}."), ("T", f"{self.origin}; {condition}.")]


def read_noisy(probabilities: Any, labels: Any, transition: Any) -> Noisy:
    """Checks the arguments of an analysis of the truth.

    Args:
        probabilities: `(N, K)`, each row of sum 1.
        labels: integers `(N,)`, or `(N, M)` of M annotators, -1 where one gave none; or counts, floats `(N, K)`, of
            labels that are alike.
        transition: T, `(K, K)` or `(M, K, K)`; a `NoiseTransition` or a model that ends in one; the result of
            `dawid_skene`; a `CountedTransition`; or a function `(probabilities, labels) -> T`.
    Raises:
        ValueError: for values that do not fit together, or a T that is singular or nearly so.
    """
    check_same_index(probabilities=probabilities, labels=labels)
    p = check_distributions(probabilities, as_given=True)
    size, several = p.shape[1], np.ndim(labels) == 2
    are_alike = several and np.asarray(labels).dtype.kind == "f"  # counts: nobody knows whose label is whose
    labels = label_shares(labels, size).votes() if are_alike else labels
    y = check_annotations(labels, size) if several else check_labels(labels, size, len(p))
    refuse_if(len(y) != len(p), "labels", f"have a row for each of the {len(p)} examples", len(y))
    if several and (y < 0).all(axis=1).any():
        empty = int(np.flatnonzero((y < 0).all(axis=1))[0])
        raise refusal("labels", "have at least one label of every example", f"none of example {empty}")
    found, redraw, origin = _read_transition(transition, p, y)
    shape = (y.shape[1], size, size) if several else (1, size, size)
    found, redraw = _repeated(found, redraw, y.shape[1]) if are_alike else (found, redraw)
    found = _fit(found, shape, several)
    inverses = np.linalg.inv(found)
    if isinstance(transition, CountedTransition):
        inverses = np.repeat(transition.inverse[None], len(found), axis=0)
    return Noisy(p, y if several else y[:, None], found, inverses, redraw, origin)


def _read_transition(transition: Any, p: np.ndarray, y: np.ndarray) -> tuple[Any, Callable | None, str]:
    """T as it is given, how to draw it anew, and where it comes from."""
    exact = "taken for exact: its error is not in the intervals"
    if isinstance(transition, CountedTransition):
        few = (
            ", but these are too few for the intervals to hold what they say" if _error(transition) > MOST_ERROR else ""
        )
        origin = f"counted on {transition.counts.sum():.0f} examples of known class; its error is in the intervals{few}"
        return transition.transition, lambda rng, _: transition.draw(rng)[None], origin
    if isinstance(transition, DawidSkene):
        return transition.transitions, None, f"of {len(transition.transitions)} annotators by Dawid and Skene, {exact}"
    if isinstance(transition, keras.Model):
        transition = CleanAndNoisy(transition).layer
    if isinstance(transition, NoiseTransition):
        return transition.transition, None, f"of the layer {transition.name!r}, {exact}"
    if not callable(transition):
        return transition, None, f"given, and {exact}"

    def redraw(_: np.random.Generator, occurs: np.ndarray) -> np.ndarray:
        places = np.repeat(np.arange(len(occurs)), occurs)
        drawn = check_transitions(transition(p[places], y[places]))
        return drawn if drawn.ndim == 3 else drawn[None]

    return transition(p, y), redraw, "estimated on these examples, and anew on each sample; a bias of it is not seen"


def _error(counted: "CountedTransition") -> float:
    """How far the product of the inverse and T may be from the identity, by the counts; infinite if T is refused.

    sqrt(E |W (T* - T)|^2 / K),    W = T^-1,    E |W (T* - T)|^2 = sum_i |W[:, i]|^2 sum_j T[i, j] (1 - T[i, j]) / n_i
    """
    if not condition_number(counted.transition) <= MOST_CONDITION:
        return np.inf
    totals, size = counted.counts.sum(axis=1), len(counted.counts)
    rows = (counted.counts + 1.0 / size) / (totals[:, None] + 1.0)  # as they are drawn: no entry is sure to be 0 or 1
    variance = (rows * (1.0 - rows)).sum(axis=1) / totals
    return float(np.sqrt(np.square(np.linalg.inv(counted.transition)).sum(axis=0) @ variance / size))


def _repeated(transition: Any, redraw: Callable | None, count: int) -> tuple[np.ndarray, Callable | None]:
    """One T for each of `count` labels of an example that are alike, and how to draw it anew."""
    found = check_transitions(as_float64(transition))
    refuse_if(found.ndim != 2, "transition", "be one matrix for counts, whose labels are alike", shape=found)
    again = None if redraw is None else lambda rng, occurs: np.repeat(redraw(rng, occurs)[:1], count, axis=0)
    return np.repeat(found[None], count, axis=0), again


def _fit(transition: Any, shape: tuple[int, int, int], several: bool) -> np.ndarray:
    """T as `(M, K, K)`, if it has this shape and can be inverted."""
    found = check_transitions(as_float64(transition))
    if found.ndim == 3 and not several:
        rule = "be one matrix for labels of shape (N,); T of several annotators go with their labels, (N, M)"
        raise refusal("transition", rule, shape=found)
    if found.ndim == 2 and several:
        raise refusal("transition", f"have shape {shape} for labels of annotators", found.shape)
    found = found if several else found[None]
    if found.shape != shape:
        outliers = found.shape[1] == shape[1] + 1
        more = "; with an outlier class, probabilities must have its column" * outliers
        rule = f"be of the {shape[1]} classes of `probabilities`{more}"
        raise refusal("transition", rule, f"shape {found.shape if several else found.shape[1:]}")
    for m, each in enumerate(found):
        if not (condition := condition_number(each)) <= MOST_CONDITION:
            whose = f" of annotator {m}; leave their labels out" * several
            rule = f"have a condition number of at most {MOST_CONDITION:g}, or labels hardly separate some true classes"
            raise refusal("transition", rule, f"{condition:.3g}{whose}")
    return found


class CountedTransition:
    """T from counts of a few examples of which the true class is known, and how far it may be off.

        T[i, j] = counts[i, j] / n_i,    row i of a draw ~ Dirichlet(counts[i] + 1 / K),    n_i = sum_j counts[i, j]

    `true_performance` and `conformal_sets` draw it anew for each of their samples, so that its error
    is in their intervals.

    Args:
        counts: examples of true class i with the label j, shape `(K, K)`, with an example of every class; see
            `from_labels`.
    Raises:
        ValueError: for another shape, a negative count, or a class without examples.
    Source: the prior of 1 / K for each entry is that of Perks 1947, "Some observations on inverse probability".

    Example:
        >>> CountedTransition([[3, 1], [0, 2]]).transition.tolist()
        [[0.75, 0.25], [0.0, 1.0]]
    """

    def __init__(self, counts: Any) -> None:
        self.transition = from_confusion(counts)
        self.counts = np.asarray(counts, "float64")

    @classmethod
    def from_labels(cls, true: Any, labels: Any, num_classes: int) -> "CountedTransition":
        """Counts the labels of examples of which the true class is known.

        Args:
            true: the true classes, integers in [0, K), shape `(N,)`.
            labels: noisy labels of the same examples, integers in [0, K), shape `(N,)`.
            num_classes: K >= 2.
        Raises:
            ValueError: for labels out of range, or a class without examples.

        Example:
            >>> CountedTransition.from_labels([0, 0, 1], [0, 1, 1], 2).counts.tolist()
            [[1.0, 1.0], [0.0, 1.0]]
        """
        size = check_integer("num_classes", num_classes, 2)
        check_same_index(true=true, labels=labels)
        true = check_labels(true, size, name="true")
        labels = check_labels(labels, size, len(true))
        return cls(np.bincount(true * size + labels, minlength=size * size).reshape(size, size))

    @property
    def inverse(self) -> np.ndarray:
        """An estimate of the inverse of the true T, `(K, K)`.

            (T + M)^-1,    M[i, j] = sum_k Cov(T[i, j], T[i, k]) W[k, i],    W = T^-1

        Errors of T make W too large on average, by W M W to second order, which this takes off. Rows are independent,
        and Cov(T[i]) = (diag(T[i]) - T[i] T[i]') / n_i.
        """
        t, w = self.transition, np.linalg.inv(self.transition)
        covered = t * w.T - t * np.einsum("ik,ki->i", t, w)[:, None]
        return np.linalg.inv(t + covered / self.counts.sum(axis=1, keepdims=True))

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A T that the counts allow, `(K, K)`, by a generator of NumPy, `rng`."""
        rows = rng.standard_gamma(self.counts + 1.0 / len(self.counts))
        return rows / rows.sum(axis=1, keepdims=True)
