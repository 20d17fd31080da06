"""The numbers of a report, collected in one place."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het import analysis, explain
from keras_het.analysis.label_quality import LabelIssues
from keras_het.analysis.next_labels import NextLabels
from keras_het.base.batches import check_same_index, count_examples, is_data_set, largest_of_rows
from keras_het.base.internals import layers_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_class_names, check_integer, check_labels
from keras_het.explain.calibration import Calibration, RiskCoverage
from keras_het.labels.diagnosis import Diagnosis, diagnose
from keras_het.layers import HeteroscedasticDense
from keras_het.reading.check import judge
from keras_het.reading.probabilities import exclusive_probabilities
from keras_het.report.noise import Noise, find_noise, unless_impossible
from keras_het.truth.true_performance import TruePerformance, true_performance
from keras_het.truth.verified_performance import VerifiedPerformance

MOST_NEXT = 20  # labels to check next
EXACT = 1e-5  # of a sum of probabilities: what rounding of float32 leaves


class Findings(NamedTuple):
    """The findings of a report on a model and N examples of K classes with labels that may be wrong.

    Attributes:
        model: its name.
        class_names: K names, as given, or numbers.
        labels: `(N,)`.
        out_of_sample: boolean, whether probabilities were given, as by cross-validation, so that the model did not
            predict.
        accuracy: against the labels.
        nll: negative log-likelihood of the labels.
        brier: Brier score against the labels.
        calibration: calibration of the confidence of the predictions.
        curve: risk and coverage by that confidence.
        issues: the labels, the worst first; None if they cannot be judged.
        noise: the noise that the head has learned; None without a head.
        missing: findings that could not be made, and why, in sentences.
        epochs: number of epochs of the training by which the labels are judged; 0 if they are judged by probabilities.
        margins: margins of each epoch of that training, `(epochs, N)`; None without a history.
        truth: quality of the predictions against the true classes; None without a T.
        verified: the same by verified labels; None without any.
        next_labels: labels to check next; None without verified ones.
        diagnosis: kind of label noise; None without probabilities out of sample.
        annotators: name, number of labels, wrong ones, accuracy, its interval and confusions of each annotator, as
            texts; None for one label for each example.
    """

    model: str
    class_names: list
    labels: np.ndarray
    out_of_sample: bool
    accuracy: float
    nll: float
    brier: float
    calibration: Calibration
    curve: RiskCoverage
    issues: LabelIssues | None
    noise: Noise | None
    missing: list[str]
    epochs: int = 0
    margins: np.ndarray | None = None
    truth: TruePerformance | None = None
    diagnosis: Diagnosis | None = None
    verified: VerifiedPerformance | None = None
    next_labels: NextLabels | None = None
    annotators: list[list[str]] | None = None

    @property
    def pairs(self) -> list | None:
        """The pairs of confused classes, by name, or None if that cannot be told."""
        if self.noise is None or self.noise.pairs is None:
            return None
        names = self.class_names
        return [
            dataclasses.replace(pair, first=names[pair.first], second=names[pair.second]) for pair in self.noise.pairs
        ]

    @property
    def flips(self) -> list[tuple[Any, Any, int]]:
        """(given label, suggested class, number of such suspects), the largest number first."""
        return self._by_name(collections.Counter((given, suggested) for given, suggested, _ in self._suspects()))

    @property
    def pair_flips(self) -> list[tuple[Any, Any, int]]:
        """(class, other class, number of suspects between the two), the largest number first.

        Only pairs of which one class is taken for the other more often than by chance: some suspects are confusable.
        """
        pairs = [(min(pair), max(pair), kind) for *pair, kind in self._suspects()]
        confusable = {(first, second) for first, second, kind in pairs if kind == "confusable"}
        return self._by_name(collections.Counter(pair for *both, _ in pairs if (pair := tuple(both)) in confusable))

    def _suspects(self) -> list[tuple[int, int, str]]:
        """(given label, suggested class, kind) of each, by number."""
        rows = () if self.issues is None else self.issues.rows()
        return [(int(given), int(suggested), kind) for _, given, suggested, _, is_issue, kind in rows if is_issue]

    def _by_name(self, counts: collections.Counter) -> list[tuple[Any, Any, int]]:
        """(name, other name, number) of pairs of classes, the largest number first."""
        return [(*(self.class_names[label] for label in pair), count) for pair, count in counts.most_common()]

    @property
    def number_of_issues(self) -> int:
        """How many labels are probably wrong."""
        return 0 if self.issues is None else int(self.issues.is_issue.sum())


def collect(
    model: keras.Model,
    x: Any,
    y: Any,
    class_names: Sequence | Mapping | None = None,
    *,
    probabilities: Any = None,
    dynamics: Any = None,
    issues: LabelIssues | None = None,
    transition: Any = None,
    verified: VerifiedPerformance | None = None,
    batch_size: int = 128,
) -> Findings:
    """Collects the findings of a report, without a page.

    Args:
        model: model of exclusive classes, with one output `(N, K)`.
        x: inputs of the model, arrays of N examples.
        y: their labels, integers in [0, K), `(N,)`; they may be wrong.
        class_names: names of the K classes, a sequence or a dict {class: name}; None for numbers.
        probabilities: out of sample, `(N, K)`, each row of sum 1; None takes the model's predictions.
        dynamics: a `callbacks.TrainingDynamics` of the same examples, by which the labels are judged; or None.
        issues: issues of the same labels, if somebody has found them; None finds them.
        transition: T, for the section on the true classes; None for none.
        verified: quality by verified labels of some of these examples, for a section on it; None for none.
        batch_size: size of the batches of the predictions.
    Returns:
        `Findings`.
    Raises:
        ValueError: as `report`.

    Example:
        >>> layer = keras.layers.Dense(2, "softmax", kernel_initializer="identity")
        >>> model = keras.Sequential([keras.Input((2,)), layer])
        >>> found = collect(model, np.array([[9.0, 0.0], [0.0, 9.0], [9.0, 0.0]]), [0, 1, 1])
        >>> round(found.accuracy, 3), found.number_of_issues, found.issues.index.tolist()
        (0.667, 1, [2, 0, 1])
    """
    refuse_if(is_data_set(x), "x", "be arrays, so that examples have a number", kind=x)
    count = count_examples(x)
    refuse_if(not count, "x", "have at least one example", "none")
    if getattr(model, "compiled", False):
        judge(model, x, trains=False)
    check_same_index(x=x, y=y, probabilities=probabilities)
    labels = check_labels(y, np.inf, count, "y")
    p = exclusive_probabilities(model, x, batch_size) if probabilities is None else _given(probabilities, count)
    labels = check_labels(labels, p.shape[1], name="y")
    units = next((layer.units for layer in layers_of(model, HeteroscedasticDense)), p.shape[1])
    if units != p.shape[1]:
        raise refusal("probabilities", f"be of the {units} classes of the model's head", p.shape[1])
    names = check_class_names(class_names, p.shape[1])
    missing: list[str] = []
    bins = explain.calibration(p, labels)
    noise = find_noise(model, x, len(names), check_integer("batch_size", batch_size, 1), missing)
    _check_dynamics(dynamics, labels, p.shape[1])
    if issues is None:
        issues = unless_impossible("Wrong labels", missing, lambda: _issues(p, labels, dynamics))
    elif not isinstance(issues, LabelIssues):
        raise refusal("issues", "be of `find_label_issues`, or None", kind=issues)
    elif not np.array_equal(np.sort(issues.index), np.arange(count)) or np.any(labels[issues.index] != issues.given):
        raise refusal("issues", f"be of the same {count} labels", "those of others")
    margins = unless_impossible("Margins by epoch", missing, lambda: None if dynamics is None else dynamics.margins)
    truth = unless_impossible("The true classes", missing, lambda: _truth(p, labels, transition))
    return Findings(
        model.name,
        names,
        labels,
        probabilities is not None,
        float(np.mean(largest_of_rows(p) == labels)),
        *_scores(p, labels),
        bins,
        explain.risk_coverage(p, labels),
        issues,
        noise,
        missing,
        0 if dynamics is None else dynamics.epochs,
        margins,
        truth,
        None if probabilities is None else _diagnosis(p, labels),
        verified,
        None if verified is None else _next_labels(p, y, names, verified),
    )


def _given(probabilities: Any, count: int) -> np.ndarray:
    p = np.asarray(probabilities)
    if p.ndim != 2 or len(p) != count or not np.issubdtype(p.dtype, np.floating):
        rule = f"be numbers of shape (N, K), a row for each of the {count} examples"
        raise refusal("probabilities", rule, f"shape {p.shape}, dtype {p.dtype}")
    return p


def _check_dynamics(dynamics: Any, labels: np.ndarray, units: int) -> None:
    """Raises a ValueError for a callback that has seen no epoch, or one of other labels or classes."""
    if dynamics is None:
        return
    found = dynamics.mean_probabilities.shape
    if found != (len(labels), units) or not np.array_equal(dynamics.labels, labels):
        rule = f"be of the same {len(labels)} examples, labels and {units} classes"
        raise refusal("dynamics", rule, f"one of {found[0]} examples and {found[1]} classes")


def _issues(p: np.ndarray, labels: np.ndarray, dynamics: Any) -> LabelIssues:
    if len(np.unique(labels)) < 2:
        raise ValueError(f"All labels are of one class, {labels[0]}: there is nothing to hold them against.")
    if dynamics is not None:
        return analysis.find_label_issues(dynamics)
    return analysis.find_label_issues(_sum_to_one(p), labels)


def _diagnosis(p: np.ndarray, labels: np.ndarray) -> Diagnosis | None:
    return diagnose(_sum_to_one(p), labels) if len(np.unique(labels)) > 1 else None


def _truth(p: np.ndarray, labels: np.ndarray, transition: Any) -> TruePerformance | None:
    return None if transition is None else true_performance(_sum_to_one(p), labels, transition)


def _next_labels(p: np.ndarray, y: Any, names: list, verified: VerifiedPerformance) -> NextLabels | None:
    """The labels to check next; None if all are verified."""
    rule = "be of these examples, as `truth.verified_performance` returned it"
    is_right = isinstance(verified, VerifiedPerformance) and verified.index.max() < len(p)
    refuse_if(not is_right, "verified", rule, kind=verified)
    index = y.index if hasattr(y, "iloc") else np.arange(len(p))
    known = dict.fromkeys(index[verified.index].tolist())
    if not (left := min(MOST_NEXT, len(p) - len(known))):
        return None
    return dataclasses.replace(analysis.next_labels(_sum_to_one(p), y, left, verified_labels=known), class_names=names)


def _sum_to_one(p: np.ndarray) -> np.ndarray:
    """Probabilities whose rows sum to 1, float32 without a copy if they do; those of half precision do only nearly."""
    sums = p.sum(axis=1, dtype="float64", keepdims=True)
    if p.dtype.itemsize >= 4 and np.all(np.abs(sums - 1.0) < EXACT):
        return p
    return p / sums


def _scores(p: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The negative log-likelihood and the Brier score, as the metrics of these names compute them."""
    own = p[np.arange(len(p)), labels].astype("float64")
    squares = np.einsum("nk,nk->n", p, p).astype("float64")
    return float(-np.log(np.maximum(own, np.finfo("float32").tiny)).mean()), float((squares - 2 * own + 1).mean())
