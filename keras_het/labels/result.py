"""Results of `clean` and `choose`: the model, and the labels that it disagrees with."""

import dataclasses
import functools
import html
import os
import pathlib
from typing import Any, Self

import keras
import numpy as np
import pandas as pd

from keras_het.base.extras import import_extra
from keras_het.base.tables import align_columns, html_table
from keras_het.base.validation import check_choice
from keras_het.labels.data import Data
from keras_het.labels.issues.page import default_examples, report
from keras_het.labels.issues.ranking import LabelIssues, from_probabilities
from keras_het.labels.training.comparison import Difference, best_of, difference
from keras_het.labels.training.trainer import Trainer, Trial, Unchanged

ACTIONS = ("drop", "correct")
LIMIT = (
    "Errors that the model has learned, for example of a rule or of one annotator, look like correct labels. To know "
    "how many labels are wrong, verify 200 drawn at random: labels.verify_accuracy."
)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Examined:
    """Labels with out-of-sample probabilities, `(N, K)`. Its subclasses describe the attributes."""

    data: Data = dataclasses.field(repr=False)
    probabilities: np.ndarray = dataclasses.field(repr=False)
    training_data: Data | None = dataclasses.field(default=None, repr=False)
    page: pathlib.Path | None = None

    @property
    def classes(self) -> np.ndarray:
        """Names or numbers of the K classes, in the order of the outputs."""
        return self.data.classes

    @functools.cached_property
    def issues(self) -> LabelIssues:
        """All labels, issues or not, the lowest score first: `find_issues` of the probabilities."""
        issues = from_probabilities(self.probabilities, self.data.labels)
        return dataclasses.replace(issues, class_names=self.classes, example_names=self.data.index)

    @property
    def dropped_rows(self) -> np.ndarray:
        """Row numbers of the issues that "drop" and "correct" act on, except if a class would be lost."""
        rows, labels = self.issues.index[self.issues.is_issue], self.data.labels
        left = np.bincount(np.delete(labels, rows), minlength=len(self.classes))
        return rows[left[labels[rows]] > 0]

    def clean_data(self, action: str = "drop") -> Data:
        """Returns the examples to train on, with the issues left out ("drop") or corrected ("correct").

        The issues of a class stay if no other label of this class would be left.
        """
        data, rows = self.data if self.training_data is None else self.training_data, self.dropped_rows
        if check_choice("action", action, ACTIONS) == "drop":
            return data[np.setdiff1d(np.arange(len(data)), rows)] if len(rows) else data
        labels, suggested = data.y.copy(), np.empty(len(data), int)
        suggested[self.issues.index] = self.issues.suggested
        classes = suggested[rows]
        labels[rows] = classes if labels.ndim == 1 else keras.utils.to_categorical(classes, data.units)
        return dataclasses.replace(data, y=labels)

    def report(self, path: str | os.PathLike = "report", **arguments: Any) -> pathlib.Path:
        """Writes the page and the table of `keras_het.labels.report` into the folder `path`; returns the page's path.

        The page shows x if it holds images or texts. Otherwise pass `images` or `examples` among the `arguments`.
        """
        return report(self.issues, path, **default_examples(self.data.x) | arguments)

    def finish(self, report_path: Any, verbose: int, x: Any) -> Self:
        """Writes the report unless `report_path` is None, prints if `verbose`, and returns the result."""
        frame = {"examples": x} if hasattr(x, "columns") else {}
        page = None if report_path is None else self.report(report_path, **frame)
        result = dataclasses.replace(self, page=page)
        if verbose:
            print(result)
        return result

    def _ends(self) -> list[str]:
        """Returns the last lines of the text."""
        return [LIMIT, *([] if self.page is None else [f"report: {self.page}"])]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Cleaned(Examined):
    """Result of `clean`. `print` shows the model, the disagreements, and the labels that the final model reads.

    Attributes:
        model: final model. From a scikit-learn classifier, it is a fitted clone that predicts the names of the classes;
            from a function, the function's model; otherwise a compiled Keras model of log-probabilities.
        classifier: description of the model, and of its held-out accuracy.
        action: "drop" or "correct", what was done with the issues; None if the model is trained on all labels.
        reason: reason for the action, in a sentence.
        learner: trains the model again, for `retrain`.
        seed: seed of the final training.
        seconds: time of the whole call.
        data: examples as you passed them; features, for a data set with a trained model.
        probabilities: out-of-sample probabilities, which decide about the labels, `(N, K)`.
        training_data: examples as the model reads them, features of a trained model; None for `data`.
        page: path of the report; None without a report.
    """

    model: Any
    classifier: str
    action: str | None
    reason: str
    learner: Any = dataclasses.field(repr=False)
    seed: int = 0
    seconds: float = 0.0

    def retrain(self, action: str = "drop") -> Any:
        """Returns a new model, trained like `model` on `clean_data(action)`, in one training."""
        return self.learner.fit(self.clean_data(action), self.seed)

    def __str__(self) -> str:
        return "\n".join([self.classifier, self.issues.summary(), self.reason, *self._ends()])

    def _repr_html_(self) -> str:
        """Returns the text for a notebook."""
        return "".join(f"<p>{html.escape(line)}</p>" for line in str(self).split("\n"))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Result(Examined):
    """Result of `choose`. `print` shows the decision, the comparison and the disagreements.

    Attributes:
        model: fitted and compiled model. It returns log-probabilities of the true classes, or logits if the method's
            head returns logits. For a list of functions, it is the function's own model.
        trials: `Trial` of each method or function, the safest first.
        chosen: trial of `model`.
        reason: decision, in a sentence or two.
        trainer: trainer of `retrain`.
        seed: seed of the final training.
        seconds: time of the whole call.
        data: examples as you passed them; features, for a data set with a trained model.
        probabilities: out-of-sample probabilities, which decide about the labels, `(N, K)`.
        training_data: examples as the model reads them, features of a trained model; None for `data`.
        page: path of the report; None without a report.
    """

    model: keras.Model
    trials: list[Trial]
    chosen: Trial
    reason: str
    trainer: Trainer = dataclasses.field(repr=False)
    seed: int = 0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Name of the chosen method or function."""
        return self.chosen.name

    @property
    def position(self) -> int:
        """Position of the chosen trial in `trials`, or of the chosen function in your list."""
        return next(number for number, trial in enumerate(self.trials) if trial is self.chosen)

    def retrain(self, action: str = "drop") -> keras.Model:
        """Returns a new model, trained like `model` on `clean_data(action)`, in one training."""
        data = self.clean_data(action)
        return self.trainer.final(self.chosen.method, data, seed=self.seed, epochs=self.chosen.epoch)

    def to_frame(self) -> Any:
        """Returns the comparison as a `pandas.DataFrame`, a row for each trial; `issues.to_frame()` has the labels."""
        columns = ["name", "score", "difference", "error", "epoch", "seconds"]
        rows = [
            (trial.name, self._score(trial), *self._gap(trial), trial.epoch, trial.seconds) for trial in self.trials
        ]
        return pd.DataFrame(rows, columns=columns).set_index("name")

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
        return "\n".join([self.reason, *table, self.issues.summary(), *self._ends()])

    def _repr_html_(self) -> str:
        """Returns the decision and the comparison for a notebook."""
        return f"<p>{html.escape(self.reason)}</p>{html_table(self._cells())}"

    @property
    def _best(self) -> Trial:
        return best_of(self.trials, self.data.weight)

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
