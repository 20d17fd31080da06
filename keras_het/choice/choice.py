"""The result of `choose`."""

import dataclasses
import html
from typing import Any

import keras
import numpy as np

from keras_het.analysis.diagnosis import NoiseDiagnosis
from keras_het.base.extras import import_extra

HEAD = ("candidate", "labels predicted", "over early stopping", "epoch", "trainings", "seconds", "")


@dataclasses.dataclass(frozen=True)
class CandidateScore:
    """A row of the table of `choose`.

    Attributes:
        name: of the candidate, with its strength if it has several.
        accuracy: share of the held-out labels, wrong ones among them, that it predicts.
        difference: its accuracy less that of the plain training, on the same examples.
        error: the standard error of this paired difference.
        epoch: the epoch of the best accuracy, counted from 1.
        trainings: how many it had.
        seconds: of all of them.
        dropped: whether it fell behind before all folds were measured.
    """

    name: str
    accuracy: float
    difference: float
    error: float
    epoch: int
    trainings: int
    seconds: float
    dropped: bool


@dataclasses.dataclass(frozen=True)
class Choice:
    """The result of `choose`; `print` shows the table and the reason.

    Attributes:
        model: the fitted model, compiled, which predicts log-probabilities of the true classes, or logits where those
            are the outputs of a candidate's head.
        name: the candidate that was chosen.
        scores: a `CandidateScore` for each candidate, the plain training first.
        reason: for the choice, in a sentence.
        diagnosis: the `NoiseDiagnosis`: which kind of wrong labels there are, how many, and the evidence.
        probabilities: of the held-out examples by the plain training, each by a model that did not see it; `(N, K)` in
            the order of the data, or of the validation data.
        classes: the labels as they were given, in the order of the outputs, `(K,)`.
        trainings: how many there were, with the last one.
        seconds: of all.
    """

    model: keras.Model
    name: str
    scores: list[CandidateScore]
    reason: str
    diagnosis: NoiseDiagnosis
    probabilities: np.ndarray
    classes: np.ndarray
    trainings: int
    seconds: float

    def to_frame(self) -> Any:
        """The table as a `pandas.DataFrame`, a line for each candidate.

        Raises:
            ImportError: without pandas.
        """
        pandas = import_extra("pandas", "The table of candidates")
        return pandas.DataFrame([dataclasses.asdict(score) for score in self.scores]).set_index("name")

    def __str__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
        return "\n".join([*table, self.reason, self.diagnosis.evidence()])

    def _repr_html_(self) -> str:
        """The same table for a notebook."""
        head, *lines = (_row(cells, "td" if index else "th") for index, cells in enumerate(self._cells()))
        return f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table><p>{html.escape(self.reason)}</p>"

    def plot(self) -> Any:
        """The differences to the plain training with their standard errors, as a `matplotlib.figure.Figure`.

        Raises:
            ImportError: without matplotlib, which comes with the extra `demo`.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 0.8 + 0.45 * len(self.scores)), layout="constrained")
        axes = figure.subplots()
        for place, score in enumerate(reversed(self.scores)):
            color = "#d1495b" if score.name == self.name else "#1f5f99"
            axes.errorbar(100 * score.difference, place, xerr=100 * score.error, fmt="o", color=color, capsize=3)
        axes.axvline(0.0, color="#999999", linewidth=1)
        axes.set_yticks(range(len(self.scores)), [score.name for score in reversed(self.scores)])
        axes.set_xlabel(f"points of held-out labels predicted, over {self.scores[0].name}")
        axes.spines[["top", "right"]].set_visible(False)
        return figure

    def _cells(self) -> list[tuple[str, ...]]:
        """The table as texts, below its titles."""
        lines: list[tuple[str, ...]] = [HEAD]
        for score in self.scores:
            mark = "<- chosen" if score.name == self.name else "dropped" if score.dropped else ""
            over = f"{100 * score.difference:+.1f} +- {100 * score.error:.1f}" if score is not self.scores[0] else ""
            numbers = f"{score.accuracy:.3f}", over, str(score.epoch), str(score.trainings), f"{score.seconds:.1f}"
            lines.append((score.name, *numbers, mark))
        return lines


def _row(cells: tuple[str, ...], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"
