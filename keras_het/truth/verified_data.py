"""Predictions, labels and verified labels of any form, as integers; and whether they seem to belong together."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from keras_het.base.batches import as_numpy, check_same_index, largest_of_rows
from keras_het.base.classes import check_no_id, encode_among, is_missing, some
from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_class_names, check_labels
from keras_het.base.verified import encode_verified
from keras_het.label_noise.estimation import check_distributions
from keras_het.label_noise.label_shares import label_shares
from keras_het.truth.verified_sample import check_random, read_sample

LEAST_ASKED, CLEARLY = 20, 0.2  # verified examples, and further agreement, from which on a mistake is asked about


class VerifiedData:
    """Predictions, labels and the verified sample, checked; classes are integers.

    Attributes:
        p: probabilities, `(N, K)`; None for predicted classes.
        predicted: `(N,)`.
        label: label, or the most frequent of several, `(N,)`.
        agrees: fraction of the labels of each example that are the prediction, `(N,)`.
        of_label: probability of the label, `(N,)`; None without probabilities.
        true: verified classes, `(n,)`.
    """

    def __init__(self, predictions: Any, labels: Any, verified: Any, inclusion: Any, class_names: Any) -> None:
        check_same_index(predictions=predictions, labels=labels)
        index = getattr(labels, "index", None) if hasattr(labels, "iloc") else None
        given = np.asarray(as_numpy(predictions))
        refuse_if(given.ndim not in (1, 2), "predictions", "have shape (N,) or (N, K)", shape=given)
        self.p = check_distributions(predictions, "predictions") if given.ndim == 2 else None
        count = len(given)
        self.sample = read_sample(verified, count, inclusion, index)
        if self.p is not None:
            names = check_class_names(class_names, self.p.shape[1])
            self.predicted = largest_of_rows(self.p)
        else:
            names = _names(given, labels, list(verified.values())) if class_names is None else list(class_names)
        self.classes = np.asarray(names)
        if self.p is None:
            self.predicted = _places(given, self.classes, "predictions")
        self.label, self.agrees = _labels(labels, self.classes, self.predicted)
        self.of_label = None if self.p is None else self.p[np.arange(count), self.label]
        self.true = encode_verified(verified, *_numbers_or_names(self.classes))

    def rate_of(self, classes: np.ndarray) -> np.ndarray:
        """How often labels are the prediction where `classes`, `(N,)`, are the same, `(N,)`."""
        size = len(self.classes)
        rates = np.bincount(classes, self.agrees, size) / np.maximum(np.bincount(classes, minlength=size), 1)
        return rates[classes]

    def proxies(self) -> list[np.ndarray]:
        """What tells whether a prediction is right, the most telling first."""
        sure = [] if self.p is None else [self.p.max(axis=1)]
        drawn = [] if self.sample.inclusion is None else [self.sample.inclusion]
        return [*drawn, self.agrees, *sure, self.rate_of(self.predicted)]

    def check_random(self) -> str:
        """See `verified_sample.check_random`."""
        scores = {"how many labels are the prediction": self.agrees}
        if self.p is not None and self.of_label is not None:
            scores |= {"their confidence": self.p.max(axis=1), "the probability of their labels": self.of_label}
        classes = {"the label": self.label, "the prediction": self.predicted}
        return check_random(self.sample, scores, classes, "verified_labels")

    def mistakes(self) -> Iterator[str]:
        """What looks as if arguments do not belong together, in words."""
        size = len(self.classes)
        counts = np.bincount(self.predicted * size + self.label, minlength=size**2).reshape(size, size)
        table = counts / len(self.label)
        best = table[linear_sum_assignment(-table)].sum()
        if best > table.trace() + CLEARLY:
            now = f"predictions agree with {table.trace():.0%} of the labels"
            yield f"{now}, in another order of classes with {best:.0%}: are they in that of `class_names`?"
        if len(self.true) < LEAST_ASKED:
            return
        label = self.label[self.sample.rows]
        by_chance = np.bincount(label, minlength=size) @ np.bincount(self.true, minlength=size)
        if np.mean(label == self.true) <= by_chance / len(label) ** 2:
            yield "verified labels are the labels no more often than by chance: do the indices belong to these labels?"
        if np.all(label == self.true) and best < 1.0:
            yield "every verified label is the label: if they were put into `labels`, give those as they were before."


def _names(predictions: np.ndarray, labels: Any, truths: list) -> list:
    """The classes of predictions, labels and verified labels, sorted; integers from 0 on."""
    predictions = _whole(predictions, "predictions")
    given = _whole(np.asarray(as_numpy(getattr(labels, "votes", labels))), "labels")
    if given.dtype.kind == "f" and given.ndim == 2:
        return list(range(given.shape[1]))
    values = [value for each in (predictions, given) for value in each.ravel().tolist()] + truths
    known = {value for value in values if not is_missing(value) and (given.ndim == 1 or value != -1)}
    kinds = sorted({"str" if isinstance(value, str) else type(value).__name__ for value in known})
    refuse_if(len(kinds) > 1, "class_names", "be given where names stand beside numbers", " and ".join(kinds))
    if kinds == ["int"]:
        refuse_if(min(known) < 0, "labels", "be integers from 0 on, or names", min(known))
        check_no_id(np.array(sorted(known)), "labels")
        return list(range(int(max(known)) + 1))
    return sorted(known)


def _numbers_or_names(classes: np.ndarray) -> list[np.ndarray]:
    """Lists of labels that may name the classes: their names, and the numbers 0 to K - 1 beside names that are none."""
    return [classes] if classes.dtype.kind in "iufb" else [classes, np.arange(len(classes))]


def _whole(given: np.ndarray, name: str) -> np.ndarray:
    """Classes of a float type as integers."""
    if given.dtype.kind != "f" or given.ndim != 1:
        return given
    two = "np.stack([1 - p, p], axis=1) for p of the second of two classes"
    rule = f"be classes (N,), or probabilities (N, K): {two}"
    refuse_if(np.any(given != np.floor(given)), name, rule, "fractions of shape (N,)")
    return given.astype("int64")


def _places(given: np.ndarray, classes: np.ndarray, name: str) -> np.ndarray:
    """Labels, names or numbers, as places among the classes, `(N,)`."""
    given = _whole(given, name)
    if given.dtype.kind in "iu" and classes.dtype.kind not in "iufb":
        return check_labels(given, len(classes), name=name)
    numbers = classes.dtype.kind in "iu" and given.dtype.kind in "OSU"
    rule = f"only the classes {some(classes.tolist())}" + "; give `class_names` for names" * numbers
    return encode_among(given, classes, name, rule)


def _labels(labels: Any, classes: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The most frequent label of each example, and the fraction of its labels that are the prediction, `(N,)`."""
    size, rule = len(classes), f"have a label for each of the {len(predicted)} predictions"
    given = np.asarray(as_numpy(getattr(labels, "votes", labels)))
    refuse_if(given.ndim == 0 or len(given) != len(predicted), "labels", rule, shape=given)
    if given.ndim == 1:
        label = _places(given, classes, "labels")
        return label, (label == predicted).astype(float)
    shares = label_shares(given, size, classes=None if classes.dtype.kind in "iufb" else classes).shares
    return shares.argmax(axis=1), shares[np.arange(len(shares)), predicted]
