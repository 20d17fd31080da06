"""Numbers and sentences of a report."""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het import explain
from keras_het.base.batches import argmax_rows, check_same_index, count_examples, is_data_set
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import number_of
from keras_het.base.validation import check_class_names, check_integer, check_labels
from keras_het.explain.drawing import shorten
from keras_het.explain.reliability import Calibration
from keras_het.labels.diagnosis import Diagnosis, diagnose
from keras_het.labels.estimation import check_distributions
from keras_het.labels.issues import LabelIssues, find_issues
from keras_het.reading.check import collect_warnings
from keras_het.reading.probabilities import exclusive_probabilities

MAX_CALIBRATION_ERROR = 0.05  # above it, the page warns against reading confidence as a probability


class Findings(NamedTuple):
    """Findings about N noisy labels of K classes.

    Attributes:
        class_names: K names, or numbers.
        labels: observed labels, `(N,)`.
        is_out_of_sample: boolean, whether the probabilities are an argument; else they are predictions of the model.
        accuracy: fraction of labels that the model predicts.
        nll: negative log-likelihood of the labels.
        brier: Brier score against the labels.
        calibration: calibration of the confidence.
        issues: `LabelIssues` of all labels; None for labels of one class.
        diagnosis: kind of label noise; None for labels of one class, or without out-of-sample probabilities.
        missing: sentences on parts that the page leaves out.
    """

    class_names: list
    labels: np.ndarray
    is_out_of_sample: bool
    accuracy: float
    nll: float
    brier: float
    calibration: Calibration
    issues: LabelIssues | None
    diagnosis: Diagnosis | None
    missing: list[str]

    @property
    def flagged(self) -> int:
        """Number of issues."""
        return 0 if self.issues is None else int(self.issues.is_issue.sum())

    @property
    def flips(self) -> list[tuple[Any, Any, int]]:
        """Suggested changes, (label, suggested class, number of issues), the largest number first."""
        return self._count_by_name((label, suggested) for label, suggested, _ in self._flags())

    @property
    def confusable(self) -> list[tuple[Any, Any, int]]:
        """Pairs that are confused beyond chance, (class, other class, number of issues between them)."""
        pairs = [(min(pair), max(pair), kind) for *pair, kind in self._flags()]
        confusable = {(first, second) for first, second, kind in pairs if kind == "confusable"}
        return self._count_by_name((first, second) for first, second, _ in pairs if (first, second) in confusable)

    def _flags(self) -> list[tuple[int, int, str]]:
        rows = () if self.issues is None else self.issues.rows()
        return [(int(label), int(suggested), kind) for _, label, suggested, _, is_issue, kind in rows if is_issue]

    def _count_by_name(self, pairs: Iterable[tuple[int, int]]) -> list[tuple[Any, Any, int]]:
        counts, names = collections.Counter(pairs), self.class_names
        return [(names[first], names[second], count) for (first, second), count in counts.most_common()]


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
    """Returns the findings for the arguments of `report`."""
    check_integer("batch_size", batch_size, 1)
    count = _check_inputs(model, x, y, probabilities)
    labels = check_labels(y, np.inf, count, "y")
    if probabilities is None:
        p = exclusive_probabilities(model, x, batch_size)
    else:
        p = check_distributions(probabilities, count=count, keep_float32=True)
    labels = check_labels(labels, p.shape[1], name="y")
    names, missing = check_class_names(class_names, p.shape[1]), []
    if hasattr(probabilities, "columns"):
        p = check_distributions(probabilities, classes=names)
    calibration = explain.calibration(p, labels)
    accuracy = float(np.mean(argmax_rows(p) == labels))
    if issues is not None:
        _check_issues(issues, labels)
    if len(np.unique(labels)) < 2:
        missing.append(f"Label errors: unknown, because all labels are of one class, {_quoted(names[labels[0]])}.")
        diagnosis = issues = None
    else:
        issues = find_issues(p, labels) if issues is None else issues
        diagnosis = None if probabilities is None else diagnose(p, labels, names)
    scores = probabilities is not None, accuracy, *_nll_and_brier(p, labels)
    return Findings(names, labels, *scores, calibration, issues, diagnosis, missing)


def _check_inputs(model: Any, x: Any, y: Any, probabilities: Any) -> int:
    """Returns the number of examples."""
    refuse_if(is_data_set(x), "x", "be arrays, so that examples have row numbers", kind=x)
    if model is None:
        refuse_if(probabilities is None, "probabilities", "be an array if `model` is None", "None")
        check_same_index(y=y, probabilities=probabilities, **({} if x is None else {"x": x}))
        return len(probabilities)
    count = count_examples(x)
    refuse_if(not count, "x", "have at least one example", "none")
    if getattr(model, "compiled", False):
        collect_warnings(model, x)
    check_same_index(x=x, y=y, probabilities=probabilities)
    return count


def _check_issues(issues: Any, labels: np.ndarray) -> None:
    if not isinstance(issues, LabelIssues):
        raise refusal("issues", "be the result of `find_issues`, or None", kind=issues)
    if not np.array_equal(np.sort(issues.index), np.arange(len(labels))) or np.any(
        labels[issues.index] != issues.label
    ):
        raise refusal("issues", f"have the same {len(labels)} labels", "issues of other labels")


def _nll_and_brier(p: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Returns the negative log-likelihood, with the clipping of Keras, and the Brier score."""
    label_p = p[np.arange(len(p)), labels].astype("float64")
    squares = np.einsum("nk,nk->n", p, p).astype("float64")
    nll = float(-np.log(np.maximum(label_p, np.finfo("float32").tiny)).mean())
    return nll, float((squares - 2 * label_p + 1).mean())


def summary(findings: Findings) -> list[str]:
    """Returns a few sentences on label errors, the kind of label noise, and the accuracy of the model."""
    kind = [] if findings.diagnosis is None else [f"Label noise: {findings.diagnosis.answer}"]
    numbers = f"{findings.accuracy:.1%} of the labels, with a mean confidence of {_confidence(findings):.1%}."
    return [*_label_errors(findings), *kind, f"The model predicts {numbers}"]


def _label_errors(findings: Findings) -> list[str]:
    count, flagged, issues = len(findings.labels), findings.flagged, findings.issues
    if issues is None:
        return []
    if not flagged:
        return [f"No label of {count:,} is an issue."]
    worst = issues.is_issue.argmax()
    label, suggested = (_quoted(findings.class_names[classes[worst]]) for classes in (issues.label, issues.suggested))
    return [
        f"Issues (likely errors): {flagged:,} of {count:,} labels ({flagged / count:.1%}).",
        f"The most suspicious is example {issues.index[worst]}, labelled {label}; the model suggests {suggested}.",
    ]


def _confidence(findings: Findings) -> float:
    bins = findings.calibration
    filled = bins.count > 0
    return float(np.average(bins.confidence[filled], weights=bins.count[filled]))


def _quoted(name: object) -> str:
    return f"“{shorten(name, max_length=40)}”"


def next_steps(findings: Findings) -> list[str]:
    """Returns the next steps, in sentences, the most urgent first."""
    rules = _improve_model, _pass_probabilities, _check_labels, _separate_classes
    training = None if findings.diagnosis is None else findings.diagnosis.next_step
    steps = [*(rule(findings) for rule in rules), training, _calibrate(findings)]
    return [step for step in steps if step] or ["You need not change anything."]


def _improve_model(findings: Findings) -> str | None:
    counts = np.bincount(findings.labels)
    majority = float(counts.max() / len(findings.labels))
    if findings.accuracy > majority or np.count_nonzero(counts) < 2:
        return None
    return (
        f"Do not rely on this page yet. The model is no better ({findings.accuracy:.1%}) than always predicting the "
        f"majority class ({majority:.1%}). Train longer, and check the data and the order of the classes."
    )


def _pass_probabilities(findings: Findings) -> str | None:
    if findings.is_out_of_sample:
        return None
    return (
        "If the model was trained on these examples, it has memorised some label errors. Then the page has too few "
        "issues, and its scores are too good. Pass probabilities from cross-validation, or use other examples."
    )


def _check_labels(findings: Findings) -> str | None:
    if not findings.flagged:
        return None
    return (
        f"Check the {number_of(findings.flagged, 'issue')} from the top; the model can be wrong. Write the correct "
        "class into the column corrected of labels.csv, and read it with labels.apply_corrections."
    )


def _separate_classes(findings: Findings) -> str | None:
    if not findings.confusable:
        return None
    first, second, count = findings.confusable[0]
    return (
        f"{_quoted(first)} and {_quoted(second)} are confused more often than by chance ({number_of(count, 'issue')}). "
        "Explain in the labelling guide how to tell them apart, or merge them."
    )


def _calibrate(findings: Findings) -> str | None:
    error = findings.calibration.error
    if error <= MAX_CALIBRATION_ERROR:
        return None
    sign = "over" if _confidence(findings) > findings.accuracy else "under"
    return (
        f"The model is {sign}confident (calibration error {error:.3f}). Calibrate it on held-out labels with "
        "keras_het.models.scale_temperature before you read its confidence as a probability."
    )
