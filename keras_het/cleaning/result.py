"""The result of cleaning labels: a model, the issues, and what is said of the noise."""

import dataclasses
import pathlib
from typing import Any

import keras
import numpy as np

from keras_het.analysis.diagnosis import NoiseDiagnosis
from keras_het.analysis.label_quality import LabelIssues
from keras_het.base.extras import import_extra

MANY = 1 / 3  # of all labels
TOO_MANY = (
    "careful: these are many. A weak model takes right labels for wrong ones: are the inputs scaled, and do more "
    "epochs make it better?"
)


@dataclasses.dataclass(frozen=True)
class CleanedLabels:
    """What `clean_labels` found and made; it prints as the diagnosis and what was done.

    Attributes:
        model: trained on the labels without the issues; it predicts the places of `classes`.
        classes: the names of the K classes, `(K,)`.
        issues: `LabelIssues`, of places of `classes`; an issue is a label that is not the class found, which is
            the suggested one.
        diagnosis: the kind of noise.
        probabilities: out of sample, `(N, K)`.
        action: what was done with the issues.
        page: the report's path; None if none was asked for.
        index: of the examples, that of a pandas frame or series if one was given, else 0 to N - 1.
    """

    model: keras.Model
    classes: np.ndarray
    issues: LabelIssues
    diagnosis: NoiseDiagnosis
    probabilities: np.ndarray
    action: str
    page: pathlib.Path | None
    index: Any

    def to_frame(self) -> Any:
        """A `pandas.DataFrame` with a line for each example, in the data's order, and the names of the classes.

        Its columns are given, suggested, score, is_issue, kind; `sort_values("score")` puts the worst first.

        Raises:
            ImportError: without pandas.
        """
        pandas = import_extra("pandas", "The frame of cleaned labels")
        order = np.argsort(self.issues.index)
        columns = {field.name: getattr(self.issues, field.name)[order] for field in dataclasses.fields(self.issues)}
        del columns["index"]
        named = {name: self.classes[columns[name]] for name in ("given", "suggested")}
        return pandas.DataFrame(columns | named, index=self.index)

    def __str__(self) -> str:
        count, of_all = int(self.issues.is_issue.sum()), len(self.issues.index)
        done = {"drop": "were left out", "correct": "were replaced by the suggested class"}[self.action]
        lines = [str(self.diagnosis), f"done: {count} of {of_all} labels are issues, and {done}"]
        lines += [TOO_MANY] if count > MANY * of_all else []
        lines += [] if self.page is None else [f"report: {self.page}"]
        return "\n".join(lines)
