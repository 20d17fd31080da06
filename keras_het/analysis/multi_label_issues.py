"""Which labels of label vectors are probably wrong: positives that are not there, and missing ones."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_het.analysis.label_quality import SHOWN, confident_issues
from keras_het.base.batches import as_numpy, check_same_index
from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import aligned
from keras_het.base.validation import check_class_names, check_label_vectors
from keras_het.ops.label_vectors import MISSING


@dataclasses.dataclass(frozen=True)
class MultiLabelIssues:
    """All labels of all examples, the least score first; arrays of shape `(M,)`, M the labels that are given.

    They print as a table of the first 20; `to_frame` makes a pandas frame of all.

    Attributes:
        index: index of the example.
        label: name or number of the label.
        given: 0 or 1.
        score: the probability of the given value, in [0, 1]; the lower, the worse.
        is_issue: boolean, whether the given value is probably wrong.
    """

    index: np.ndarray
    label: np.ndarray
    given: np.ndarray
    score: np.ndarray
    is_issue: np.ndarray

    def to_frame(self) -> Any:
        """The labels as a `pandas.DataFrame`, a line for each, the worst first.

        Raises:
            ImportError: without pandas.
        """
        pandas = import_extra("pandas", "The frame of label issues")
        return pandas.DataFrame({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})

    def __str__(self) -> str:
        rows = zip(self.index, self.label, self.given, self.score, self.is_issue, strict=True)
        cells = [["index", "label", "given", "score", "issue"]]
        for index, label, given, score, is_issue in itertools.islice(rows, SHOWN):
            found = ("missing", "wrong")[int(given)] if is_issue else ""
            cells.append([str(index), str(label), str(given), f"{score:.4f}", found])
        missing = int((self.is_issue & (self.given == 0)).sum())
        counts = f"{int(self.is_issue.sum())} of {len(self.index)} labels are probably wrong"
        return "\n".join([*aligned(cells), f"{counts}, of which {missing} are missing positives"])


def find_multi_label_issues(
    probabilities: Any, labels: Any, *, class_names: Sequence | Mapping | None = None
) -> MultiLabelIssues:
    """Which labels of label vectors are probably wrong, by probabilities out of sample.

    The method is confident learning of each label by itself, a task of two classes: a 0 is a missing positive if its
    probability is as high as that of given positives, and the reverse. The number of issues of a label is estimated as
    by `find_label_issues`.

    The probabilities may be those of `predict`, or `JointLabels.given_others`, the probability of each label given the
    other labels of the example: that also finds a label that fits the picture, and not the labels beside it.

    Args:
        probabilities: probabilities that each label is 1, by a model that was not trained on the example, `(N, C)`.
        labels: 0, 1, or -1 for labels that are not known, which are left out, `(N, C)`.
        class_names: a sequence or a dict {label: name}; None numbers the labels.
    Returns:
        `MultiLabelIssues`.
    Raises:
        ValueError: for other shapes or values, or no label that is known.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", sections 3.1 and 3.2, for each label.

    Example:
        >>> p = np.array([[0.9], [0.8], [0.95], [0.2], [0.1], [0.9]])
        >>> print(find_multi_label_issues(p, [[1], [1], [1], [0], [0], [0]], class_names=["dog"]))
        index  label  given   score    issue
            5    dog      0  0.1000  missing
            1    dog      1  0.8000
            3    dog      0  0.8000
            0    dog      1  0.9000
            4    dog      0  0.9000
            2    dog      1  0.9500
        1 of 6 labels are probably wrong, of which 1 are missing positives
    """
    check_same_index(probabilities=probabilities, labels=labels)
    p = np.asarray(as_numpy(probabilities), "float64")
    if p.ndim != 2 or not ((p >= 0.0) & (p <= 1.0)).all():
        raise refusal("probabilities", "be in [0, 1], of shape (N, C)", shape=p)
    y = check_label_vectors(labels, (p.shape,))
    refuse_if(np.all(y == MISSING), "labels", "have one that is known", "-1 alone")
    names, parts = np.asarray(check_class_names(class_names, p.shape[1])), []
    for place, name in enumerate(names):
        index = np.flatnonzero(y[:, place] != MISSING)
        given, positive = y[index, place].astype("int64"), p[index, place]
        both = np.stack([1.0 - positive, positive], axis=1)
        score = both[np.arange(len(index)), given]
        parts.append((index, np.full(len(index), name), given, score, confident_issues(given, both)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[3], kind="stable")
    return MultiLabelIssues(*(column[order] for column in columns))
