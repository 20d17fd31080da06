"""Numbers of a report, and the sentences that say them."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het import explain
from keras_het.base.batches import argmax_rows, check_same_index, count_examples, is_data_set
from keras_het.base.classes import order_columns
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_class_names, check_integer, check_labels
from keras_het.explain.calibration import Calibration
from keras_het.explain.covariance import ConfusedPairs
from keras_het.explain.drawing import shorten
from keras_het.explain.noise import HeadNoise, head_noise
from keras_het.labels.diagnosis import Diagnosis, diagnose
from keras_het.labels.issues import LabelIssues, find_issues
from keras_het.reading.check import collect_warnings
from keras_het.reading.probabilities import exclusive_probabilities

MAX_CALIBRATION_ERROR = 0.05  # above it, the page advises against reading confidence as a probability
ROUNDING = 1e-5  # of a sum of probabilities in float32


class Findings(NamedTuple):
    """Findings about N labels of K classes, of which some may be errors.

    Attributes:
        class_names: K names, as the user named them, or numbers.
        labels: `(N,)`.
        out_of_sample: boolean, whether the user gave the probabilities.
        accuracy: fraction of labels that are the most probable class.
        nll: negative log-likelihood of the labels.
        brier: Brier score against the labels.
        calibration: calibration of the confidence.
        issues: all labels, the least score first; None for labels of one class.
        diagnosis: kind of label noise; None for labels of one class, or without out-of-sample probabilities.
        noise: noise of the head; None without a head.
        missing: reasons for parts that the page leaves out, in sentences.
    """

    class_names: list
    labels: np.ndarray
    out_of_sample: bool
    accuracy: float
    nll: float
    brier: float
    calibration: Calibration
    issues: LabelIssues | None
    diagnosis: Diagnosis | None
    noise: HeadNoise | None
    missing: list[str]

    @property
    def flagged(self) -> int:
        """Number of labels that are flagged."""
        return 0 if self.issues is None else int(self.issues.is_issue.sum())

    @property
    def flips(self) -> list[tuple[Any, Any, int]]:
        """(label, suggested class, number of flagged labels), the largest number first."""
        return self._by_name(collections.Counter((label, suggested) for label, suggested, _ in self._flags()))

    @property
    def confusable(self) -> list[tuple[Any, Any, int]]:
        """(class, other class, number of flagged labels between them) of pairs that are confused beyond chance."""
        pairs = [(min(pair), max(pair), kind) for *pair, kind in self._flags()]
        known = {(first, second) for first, second, kind in pairs if kind == "confusable"}
        return self._by_name(collections.Counter(pair for *both, _ in pairs if (pair := tuple(both)) in known))

    @property
    def pairs(self) -> ConfusedPairs:
        """Pairs of classes that share noise in the head, by name, the largest covariance first."""
        pairs, names = (self.noise.pairs or [] if self.noise else []), self.class_names
        named = (dataclasses.replace(pair, first=names[pair.first], second=names[pair.second]) for pair in pairs)
        return ConfusedPairs(named)

    def _flags(self) -> list[tuple[int, int, str]]:
        rows = () if self.issues is None else self.issues.rows()
        return [(int(label), int(suggested), kind) for _, label, suggested, _, is_issue, kind in rows if is_issue]

    def _by_name(self, counts: collections.Counter) -> list[tuple[Any, Any, int]]:
        return [(*(self.class_names[label] for label in pair), count) for pair, count in counts.most_common()]


def collect(
    model: keras.Model | None,
    x: Any,
    y: Any,
    class_names: Sequence | Mapping | None = None,
    *,
    probabilities: Any = None,
    issues: LabelIssues | None = None,
    batch_size: int = 128,
) -> Findings:
    """Collects the findings of a report, whose arguments these are.

    Example:
        >>> p = np.array([[0.99, 0.01], [0.98, 0.02], [0.97, 0.03], [0.99, 0.01], [0.02, 0.98], [0.03, 0.97]])
        >>> findings = collect(None, None, [0, 0, 0, 1, 1, 1], probabilities=p)
        >>> round(findings.accuracy, 3), findings.flagged, findings.issues.index.tolist()
        (0.833, 1, [3, 2, 5, 1, 4, 0])
    """
    check_integer("batch_size", batch_size, 1)
    count = _check_inputs(model, x, y, probabilities)
    labels = check_labels(y, np.inf, count, "y")
    p = (
        exclusive_probabilities(model, x, batch_size)
        if probabilities is None
        else _check_rows(probabilities, count, class_names)
    )
    labels = check_labels(labels, p.shape[1], name="y")
    names, missing = check_class_names(class_names, p.shape[1]), []
    calibration = explain.calibration(p, labels)
    accuracy = float(np.mean(argmax_rows(p) == labels))
    if issues is not None:
        _check_issues(issues, labels)
    if len(np.unique(labels)) < 2:
        missing.append(f"Label errors: not known. All labels are of one class, {labels[0]}.")
        diagnosis = issues = None
    else:
        rows = _normalized(p)
        issues = find_issues(rows, labels) if issues is None else issues
        diagnosis = None if probabilities is None else diagnose(rows, labels, names)
    noise = None if model is None else _noise(model, x, len(names), batch_size, missing)
    out_of_sample, scores = probabilities is not None, _scores(p, labels)
    return Findings(names, labels, out_of_sample, accuracy, *scores, calibration, issues, diagnosis, noise, missing)


def _check_inputs(model: Any, x: Any, y: Any, probabilities: Any) -> int:
    """Returns the number of examples."""
    refuse_if(is_data_set(x), "x", "be arrays, so that examples have a number", kind=x)
    if model is None:
        refuse_if(probabilities is None, "probabilities", "be given if `model` is None", "None")
        check_same_index(y=y, probabilities=probabilities, **({} if x is None else {"x": x}))
        return len(probabilities)
    count = count_examples(x)
    refuse_if(not count, "x", "have at least one example", "none")
    if getattr(model, "compiled", False):
        collect_warnings(model, x)
    check_same_index(x=x, y=y, probabilities=probabilities)
    return count


def _check_rows(probabilities: Any, count: int, class_names: Any) -> np.ndarray:
    """Returns probabilities with their columns in the order of the classes."""
    p = np.asarray(probabilities)
    if p.ndim != 2 or len(p) != count or not np.issubdtype(p.dtype, np.floating):
        rule = f"be numbers of shape (N, K), a row for each of the {count} examples"
        raise refusal("probabilities", rule, f"shape {p.shape}, dtype {p.dtype}")
    return np.asarray(order_columns(check_class_names(class_names, p.shape[1]), order_columns(None, probabilities)))


def _check_issues(issues: Any, labels: np.ndarray) -> None:
    if not isinstance(issues, LabelIssues):
        raise refusal("issues", "be of `find_issues`, or None", kind=issues)
    if not np.array_equal(np.sort(issues.index), np.arange(len(labels))) or np.any(
        labels[issues.index] != issues.given
    ):
        raise refusal("issues", f"be of the same {len(labels)} labels", "issues of other labels")


def _normalized(p: np.ndarray) -> np.ndarray:
    """Returns rows of sum 1, float32 without a copy; half precision rounds sums."""
    sums = p.sum(axis=1, dtype="float64", keepdims=True)
    return p if p.dtype.itemsize >= 4 and np.all(np.abs(sums - 1.0) < ROUNDING) else p / sums


def _scores(p: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Returns the negative log-likelihood, as Keras' metric computes it, and the Brier score."""
    own = p[np.arange(len(p)), labels].astype("float64")
    squares = np.einsum("nk,nk->n", p, p).astype("float64")
    return float(-np.log(np.maximum(own, np.finfo("float32").tiny)).mean()), float((squares - 2 * own + 1).mean())


def _noise(model: Any, x: Any, classes: int, batch_size: int, missing: list[str]) -> HeadNoise | None:
    """Returns the noise of the head, and adds to `missing` why it is not known."""
    try:
        noise = head_noise(model, x, classes, batch_size)
    except ValueError as error:
        missing.append(f"Noise of the head: not known. {error}")
        return None
    if noise is not None and noise.pairs is None:
        missing.append(f"Confused classes: not known. {noise.reason}")
    return noise


def summary(findings: Findings) -> list[str]:
    """Returns the answer in a few sentences: label errors, their kind, and how far to trust that."""
    kind = [] if findings.diagnosis is None else [f"Label noise: {findings.diagnosis.answer}"]
    trust = f"{findings.accuracy:.1%} of the labels and is {_confidence(findings):.1%} sure on average."
    return [*_flagged(findings), *kind, f"The model predicts {trust}"]


def _flagged(findings: Findings) -> list[str]:
    count, issues = len(findings.labels), findings.issues
    if issues is None:
        return []
    if not findings.flagged:
        return [f"No label of {count:,} is flagged."]
    worst = issues.is_issue.argmax()
    label, suggested = (_quoted(findings.class_names[classes[worst]]) for classes in (issues.given, issues.suggested))
    return [
        f"{findings.flagged:,} of {count:,} labels ({findings.flagged / count:.1%}) are flagged: the model disagrees.",
        f"The worst is example {issues.index[worst]}: its label is {label}, and the model suggests {suggested}.",
    ]


def _confidence(findings: Findings) -> float:
    bins = findings.calibration
    filled = bins.count > 0
    return float(np.average(bins.confidence[filled], weights=bins.count[filled]))


def _quoted(name: object) -> str:
    return f"“{shorten(name, max_length=40)}”"


def next_steps(findings: Findings) -> list[str]:
    """Returns what to do, in sentences, the most urgent first."""
    first = [rule(findings) for rule in (_not_learned, _in_sample, _look_at_labels, _confused)]
    training = None if findings.diagnosis is None else findings.diagnosis.next_step
    steps = [*first, training, _badly_calibrated(findings)]
    return [step for step in steps if step] or ["Nothing here asks for a change."]


def _not_learned(findings: Findings) -> str | None:
    counts = np.bincount(findings.labels)
    share = float(counts.max() / len(findings.labels))
    if findings.accuracy > share or np.count_nonzero(counts) < 2:
        return None
    return (
        f"Do not rely on this page yet: accuracy ({findings.accuracy:.1%}) is not above that of always predicting the "
        f"majority class ({share:.1%}). Train longer, or check the data and the order of the classes."
    )


def _in_sample(findings: Findings) -> str | None:
    if findings.out_of_sample:
        return None
    return (
        "If the model was trained on these examples, it has memorised some label errors: the page flags too few, and "
        "its scores are too good. Pass probabilities from cross-validation, or use other examples."
    )


def _look_at_labels(findings: Findings) -> str | None:
    if not findings.flagged:
        return None
    return (
        f"Check the {findings.flagged:,} flagged labels, the worst first; the model can be wrong. Write the correct "
        "class into the corrected column of labels.csv, and read it with labels.apply_corrections."
    )


def _confused(findings: Findings) -> str | None:
    if not findings.confusable:
        return None
    first, second, count = findings.confusable[0]
    return (
        f"{_quoted(first)} and {_quoted(second)} are confused more often than by chance ({count:,} flagged labels). "
        "Say in the labelling guide how to tell them apart, or merge them."
    )


def _badly_calibrated(findings: Findings) -> str | None:
    error = findings.calibration.error
    if error <= MAX_CALIBRATION_ERROR:
        return None
    sign = "over" if _confidence(findings) > findings.accuracy else "under"
    return (
        f"The model is {sign}confident (calibration error {error:.3f}): do not read confidence as a probability. "
        "Scale it on held-out labels with keras_het.models.scale_temperature."
    )
