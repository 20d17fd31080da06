"""Result of `choose` and `clean`: the model, the comparison, and the labels that the model disagrees with."""

import dataclasses
import functools
import html
import os
import pathlib
from typing import Any

import keras
import numpy as np

from keras_het.base.extras import import_extra
from keras_het.base.tables import align_columns, html_table
from keras_het.base.validation import check_choice
from keras_het.labels.comparison import Difference, best_of, difference
from keras_het.labels.data import Data
from keras_het.labels.decoding import Decoded, decode
from keras_het.labels.issues import LabelIssues, all_issues
from keras_het.labels.reports import report
from keras_het.labels.training import Trainer, Trial, Unchanged

ACTIONS = ("drop", "correct")


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """Result of `choose` and `clean`. `print` shows the decision, the comparison and the kind of label noise.

    Attributes:
        model: fitted and compiled model. It returns log-probabilities of the true classes, or logits if the method's
            head returns logits. For a function in `clean`, or a list in `choose`, it is the function's own model.
        trials: `Trial` of each method or function, the safest first.
        chosen: trial of `model`.
        reason: decision, in a sentence or two.
        diagnosis: `Diagnosis` of the label noise.
        probabilities: out-of-sample probabilities of the plain training or the discriminant, `(N, K)`, which decide
            about the labels.
        data: examples as you passed them; features, for a data set with a trained model.
        trainer: trainer of `retrain`.
        seed: seed of the final training.
        seconds: time of the whole call.
        page: path of the report; None without a report.
        training_data: examples as the network reads them, features of a trained model; None for `data`.
    """

    model: keras.Model
    trials: list[Trial]
    chosen: Trial
    reason: str
    diagnosis: Any
    probabilities: np.ndarray
    data: Data = dataclasses.field(repr=False)
    trainer: Trainer = dataclasses.field(repr=False)
    seed: int = 0
    seconds: float = 0.0
    page: pathlib.Path | None = None
    training_data: Data | None = dataclasses.field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Name of the chosen method or function."""
        return self.chosen.name

    @property
    def position(self) -> int:
        """Position of the chosen trial in `trials`, or of the chosen function in your list."""
        return next(number for number, trial in enumerate(self.trials) if trial is self.chosen)

    @property
    def classes(self) -> np.ndarray:
        """Names or numbers of the K classes, in the order of the outputs."""
        return self.data.classes

    @functools.cached_property
    def issues(self) -> LabelIssues:
        """All labels, issues or not, the lowest score first; `index` has row numbers.

        If most disagreements are confident issues, all disagreements are issues. Otherwise only the confident issues
        are, because most other disagreements are correct labels of hard examples.
        """
        issues = all_issues(self.probabilities, self.data.labels, self._decoded)
        return dataclasses.replace(issues, class_names=self.classes, example_names=self.data.index)

    @functools.cached_property
    def confident_issues(self) -> np.ndarray:
        """Row numbers of the confident issues, the issues of `find_issues`, `(n,)`, the lowest score first.

        "drop" and "correct" act on these. Other issues are mostly correct labels of hard examples that a model needs.
        """
        issues = all_issues(self.probabilities, self.data.labels, self._decoded, flags_all=False)
        return issues.index[issues.is_issue]

    def clean_data(self, action: str = "drop") -> Data:
        """Returns the examples to train on, with the confident issues left out ("drop") or corrected ("correct")."""
        data, rows = self.data if self.training_data is None else self.training_data, self.confident_issues
        if check_choice("action", action, ACTIONS) == "drop":
            return data[np.setdiff1d(np.arange(len(data)), rows)] if len(rows) else data
        labels, suggested = data.y.copy(), np.empty(len(data), int)
        suggested[self.issues.index] = self.issues.suggested
        classes = suggested[rows]
        labels[rows] = classes if labels.ndim == 1 else keras.utils.to_categorical(classes, data.units)
        return dataclasses.replace(data, y=labels)

    def retrain(self, action: str = "drop") -> keras.Model:
        """Returns a new model, trained like `model` on `clean_data(action)`, in one training."""
        data = self.clean_data(action)
        return self.trainer.final(self.chosen.method, data, seed=self.seed, epochs=self.chosen.epoch)

    def report(self, path: str | os.PathLike = "report", **arguments: Any) -> pathlib.Path:
        """Writes the page and the table of `keras_het.labels.report` into the folder `path`; returns the page's path.

        The page shows x if it holds images or texts. Otherwise pass `images`, `texts` or `frame` among the `arguments`.
        """
        labels = self.data.labels
        if self.data.index is not None:
            labels = import_extra("pandas", "The report on a frame").Series(labels, self.data.index)
        defaults: dict[str, Any] = {"probabilities": self.probabilities, "issues": self.issues}
        defaults["title"] = "Labels and probabilities"
        return report(None, self.data.x, labels, self.classes.tolist(), path, **defaults | arguments)

    def to_frame(self) -> Any:
        """Returns the comparison as a `pandas.DataFrame`, a row for each trial; `issues.to_frame()` has the labels."""
        pandas = import_extra("pandas", "The table of methods")
        columns = ["name", "score", "difference", "error", "epoch", "seconds"]
        rows = [
            (trial.name, self._score(trial), *self._gap(trial), trial.epoch, trial.seconds) for trial in self.trials
        ]
        return pandas.DataFrame(rows, columns=columns).set_index("name")

    def plot(self) -> Any:
        """Returns a `matplotlib.figure.Figure` of the differences from the best trial, with standard errors."""
        import_extra("matplotlib", "The plot of a result")
        from matplotlib.figure import Figure

        scale, unit = (100, "points of noisy accuracy") if self._is_accuracy else (1, "mean log p")
        figure = Figure(figsize=(7, 0.8 + 0.45 * len(self.trials)), layout="constrained")
        axes = figure.subplots()
        for place, trial in enumerate(reversed(self.trials)):
            gap = self._gap(trial)
            color = "#d1495b" if trial is self.chosen else "#1f5f99"
            axes.errorbar(scale * gap.mean, place, xerr=scale * gap.error, fmt="o", color=color, capsize=3)
        axes.axvline(0.0, color="#999999", linewidth=1)
        axes.set_yticks(range(len(self.trials)), [trial.name for trial in reversed(self.trials)])
        axes.set_xlabel(f"{unit}, against {self._best.name}")
        axes.spines[["top", "right"]].set_visible(False)
        return figure

    def __str__(self) -> str:
        table = align_columns(cells := self._cells(), left=range(len(cells[0])))
        page = [] if self.page is None else [f"report: {self.page}"]
        return "\n".join([self.reason, *table, str(self.diagnosis), *page])

    def _repr_html_(self) -> str:
        """Returns the decision and the comparison for a notebook."""
        return f"<p>{html.escape(self.reason)}</p>{html_table(self._cells())}"

    @property
    def _best(self) -> Trial:
        return best_of(self.trials, self.data.weight)

    @functools.cached_property
    def _decoded(self) -> Decoded:
        """Classes of the examples by `probabilities`."""
        return decode(self.data.labels, self.probabilities)

    def _gap(self, trial: Trial) -> Difference:
        """Returns the difference of a trial from the best one."""
        return difference(trial.score, self._best.score, self.data.weight)

    @property
    def _is_accuracy(self) -> bool:
        return self.trainer.criterion == "accuracy"

    def _score(self, trial: Trial) -> float:
        """Returns the mean score of held-out labels; a loss is the mean of -log p(label)."""
        return float(np.average(trial.score, weights=self.data.weight)) * (1 if self._is_accuracy else -1)

    def _cells(self) -> list[tuple[str, ...]]:
        """Returns the cells of the table, below its titles."""
        scale, digits = (100, 1) if self._is_accuracy else (1, 3)
        title = "model" if isinstance(self.chosen.method, Unchanged) else "method"
        unit = "points" if self._is_accuracy else "log p"
        titles = (title, f"noisy {self.trainer.criterion}", f"{unit} against best")
        lines: list[tuple[str, ...]] = [(*titles, "epoch", "seconds", "")]
        for trial in self.trials:
            gap = self._gap(trial)
            text = "" if trial is self._best else f"{scale * gap.mean:+.{digits}f} +- {scale * gap.error:.{digits}f}"
            mark = "<- chosen" if trial is self.chosen and len(self.trials) > 1 else ""
            numbers = str(trial.epoch), f"{trial.seconds:.1f}"
            lines.append((trial.name, f"{self._score(trial):.4f}", text, *numbers, mark))
        return lines if len(self.trials) > 1 else [line[:2] + line[3:5] for line in lines]


def write_and_print(result: Result, report_path: Any, verbose: int, x: Any) -> Result:
    """Writes the report unless `report_path` is None, prints if `verbose`, and returns the result with the page."""
    if report_path is not None:
        frame = {"frame": x} if hasattr(x, "columns") else {}
        result = dataclasses.replace(result, page=result.report(report_path, **frame))
    if verbose:
        print(result)
    return result
