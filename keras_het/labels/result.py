"""The result of `choose` and `clean`: the model, what was compared, and the labels that the model disagrees with."""

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
from keras_het.labels.report import report
from keras_het.labels.training import Trainer, Trial, Unchanged

ACTIONS = ("drop", "correct")


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """The result of `choose` and `clean`; `print` shows the reason, the table, and the kind of noise.

    Attributes:
        model: fitted model, compiled. It predicts log-probabilities of the true classes, or logits if a method's head
            returns those; where a function's models are trained as they are, it is one of them.
        trials: a `Trial` for each method or function, in the order of caution.
        chosen: the trial of `model`.
        reason: decision, in a sentence or two.
        diagnosis: kind of wrong labels, and the evidence.
        probabilities: probabilities of each example by a model that was not trained on it, `(N, K)`: those by which the
            labels are judged, of the plain training or of the discriminant.
        data: the examples as they were given. Of a data set for a trained model these are the features.
        trainer: trainer of `retrain`.
        seed: seed of the final training.
        seconds: time of the whole call.
        page: path of the report; None if there is none.
        training_data: the examples as the network takes them, features of a trained model; None for those of `data`.
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
        """The name of the chosen method or function."""
        return self.chosen.name

    @property
    def position(self) -> int:
        """The position of the chosen trial in `trials`; for a list of functions, in that list."""
        return next(number for number, trial in enumerate(self.trials) if trial is self.chosen)

    @property
    def classes(self) -> np.ndarray:
        """The names of the K classes, or their numbers, in the order of the outputs."""
        return self.data.classes

    @functools.cached_property
    def issues(self) -> LabelIssues:
        """All labels, issues or not, the least score first, by `probabilities`; `index` has row numbers.

        If `find_issues` flags most of the labels that are not the suggested class, all of these are issues. Else the
        issues are those that it flags: most others are correct labels of hard examples.
        """
        issues = all_issues(self.probabilities, self.data.labels, self._decoded)
        return dataclasses.replace(issues, class_names=self.classes, example_names=self.data.index)

    @functools.cached_property
    def surest(self) -> np.ndarray:
        """Row numbers of the issues that "drop" and "correct" act on, `(n,)`, the least score first.

        They are the issues of `find_issues`. The others are mostly correct labels of hard examples that a model needs.
        """
        few = all_issues(self.probabilities, self.data.labels, self._decoded, takes_all=False)
        return few.index[few.is_issue]

    def cleaned(self, action: str = "drop") -> Data:
        """Returns the examples to train on: `action` "drop" leaves the surest issues out, "correct" corrects them."""
        data = self.data if self.training_data is None else self.training_data
        if check_choice("action", action, ACTIONS) == "drop":
            return data[np.setdiff1d(np.arange(len(data)), self.surest)] if len(self.surest) else data
        labels, suggested = data.y.copy(), np.empty(len(data), int)
        suggested[self.issues.index] = self.issues.suggested
        corrected = suggested[self.surest]
        labels[self.surest] = corrected if labels.ndim == 1 else keras.utils.to_categorical(corrected, data.units)
        return dataclasses.replace(data, y=labels)

    def retrain(self, action: str = "drop") -> keras.Model:
        """Returns a new model, trained like `model` on what `cleaned(action)` returns; no fold is trained again."""
        return self.trainer.final(self.chosen.method, self.cleaned(action), seed=self.seed, epochs=self.chosen.epoch)

    def report(self, path: str | os.PathLike = "report", **arguments: Any) -> pathlib.Path:
        """Writes a page about the labels into the folder `path`, and returns its path; it needs Matplotlib and Jinja.

        It shows the suspects if x are images or texts; else `images`, `texts` or `frame` among the `arguments` of
        `keras_het.labels.report` show them.
        """
        labels = self.data.labels
        if self.data.index is not None:
            labels = import_extra("pandas", "The report on a frame").Series(labels, self.data.index)
        given: dict[str, Any] = {"probabilities": self.probabilities, "issues": self.issues}
        given["title"] = "Labels and probabilities"
        return report(self._model_of_data(), self.data.x, labels, self.classes.tolist(), path, **given | arguments)

    def _model_of_data(self) -> keras.Model:
        """Returns the model that takes `data.x`: its last part, if these are the features of a data set."""
        if self.trainer.frozen is None or self.training_data is not self.data:
            return self.model
        return self.model.layers[-1]

    def to_frame(self) -> Any:
        """Returns the table as a `pandas.DataFrame`, a line for each trial; `issues.to_frame()` has the labels."""
        pandas = import_extra("pandas", "The table of methods")
        columns = ["name", "score", "difference", "error", "epoch", "seconds"]
        rows = [
            (trial.name, self._score(trial), *self._gap(trial), trial.epoch, trial.seconds) for trial in self.trials
        ]
        return pandas.DataFrame(rows, columns=columns).set_index("name")

    def plot(self) -> Any:
        """Returns the distances from the best trial, with standard errors, as a `matplotlib.figure.Figure`."""
        import_extra("matplotlib", "The plot of a result")
        from matplotlib.figure import Figure

        scale, unit = (100, "points of held-out labels predicted") if self._is_accuracy else (1, "mean log p")
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
        """The same for a notebook."""
        return f"<p>{html.escape(self.reason)}</p>{html_table(self._cells())}"

    @property
    def _best(self) -> Trial:
        return best_of(self.trials, self.data.weight)

    @functools.cached_property
    def _decoded(self) -> Decoded:
        """The classes of the examples by `probabilities`."""
        return decode(self.data.labels, self.probabilities)

    def _gap(self, trial: Trial) -> Difference:
        """The difference of a trial from the best one."""
        return difference(trial.score, self._best.score, self.data.weight)

    @property
    def _is_accuracy(self) -> bool:
        return self.trainer.criterion == "accuracy"

    def _score(self, trial: Trial) -> float:
        """The mean score of held-out labels; a loss is the mean of -log p(label)."""
        return float(np.average(trial.score, weights=self.data.weight)) * (1 if self._is_accuracy else -1)

    def _cells(self) -> list[tuple[str, ...]]:
        """The table as texts, below its titles."""
        scale, digits = (100, 1) if self._is_accuracy else (1, 3)
        title = "model" if isinstance(self.chosen.method, Unchanged) else "method"
        titles = (title, self.trainer.criterion, "points against best" if self._is_accuracy else "log p against best")
        lines: list[tuple[str, ...]] = [(*titles, "epoch", "seconds", "")]
        for trial in self.trials:
            gap = self._gap(trial)
            behind = "" if trial is self._best else f"{scale * gap.mean:+.{digits}f} +- {scale * gap.error:.{digits}f}"
            mark = "<- chosen" if trial is self.chosen and len(self.trials) > 1 else ""
            numbers = str(trial.epoch), f"{trial.seconds:.1f}"
            lines.append((trial.name, f"{self._score(trial):.4f}", behind, *numbers, mark))
        return lines if len(self.trials) > 1 else [line[:2] + line[3:5] for line in lines]


def finished(result: Result, report_path: Any, verbose: int, x: Any) -> Result:
    """Returns a result with its report, which shows a pandas frame x, if one is wanted; prints it if that is wanted."""
    if report_path is not None:
        shown = {"frame": x} if hasattr(x, "columns") else {}
        result = dataclasses.replace(result, page=result.report(report_path, **shown))
    if verbose:
        print(result)
    return result
