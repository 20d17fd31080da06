"""The result of a call that trains: the model, what was compared, why, and which labels are probably wrong."""

import dataclasses
import functools
import html
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from keras_het.analysis import find_label_issues, next_labels
from keras_het.analysis.label_quality import LabelIssues, issues_by_class
from keras_het.analysis.next_labels import NextLabels
from keras_het.base.extras import import_extra
from keras_het.base.tables import aligned, html_table
from keras_het.base.validation import check_choice
from keras_het.labels.diagnosis import Diagnosis
from keras_het.labels.report import report
from keras_het.training.networks import part_on_features
from keras_het.training.table import Score, cells_of, compares, drawn
from keras_het.training.task import Task
from keras_het.training.vote_issues import VoteIssues, vote_issues
from keras_het.truth.verified_performance import VerifiedPerformance, verified_performance

ACTIONS = ("drop", "correct")
MANY = 1 / 3  # of all labels
SHOWN = {"images", "texts", "frame"}  # arguments of `report` with an entry for each example
BY_CLASS = ("by class",)  # kinds of noise that do not depend on the example
TOO_MANY = (
    "careful: these are many. A weak model takes right labels for wrong ones: are the inputs scaled, and do more "
    "epochs make it better?"
)


@dataclasses.dataclass(frozen=True)
class Result:
    """What `choose`, `clean_labels` and `tune` return; `print` shows the table and the reason.

    Attributes:
        model: fitted model, compiled. That of `choose` predicts log-probabilities of the true classes, or logits where
            those are the outputs of a candidate's head; the others are the user's own.
        best: line of the table that was chosen.
        table: a `Score` for each candidate or value, the plain training first, or values in order.
        criterion: name of what the scores measure.
        reason: reason of the choice, in a sentence or two.
        diagnosis: `Diagnosis`: which kind of wrong labels there are, and the evidence; None by `tune`.
        probabilities: probabilities of the held-out examples by the plain training, each by a model that did not see
            it, `(N, K)` in the order of the data, or of the validation data. None by `tune`. Those of `choose` are by
            the averaged weights, as its model and scores are, at the best epoch of each fold, while `epoch` and `score`
            in the table are of one epoch, the best moving mean of all folds together.
        classes: labels as they were given, in the order of the outputs, `(K,)`; None by `tune`.
        trainings: number of trainings, with the last one.
        seconds: time of all trainings.
        data: `Task` of the examples that the probabilities are of; None by `tune`.
        page: path of the report; None if none was asked for.
        train: function of labels and indices that `retrain` calls; None where it cannot.
    """

    model: keras.Model
    best: Score
    table: list[Score]
    criterion: str
    reason: str
    diagnosis: Diagnosis | None = None
    probabilities: np.ndarray | None = None
    classes: np.ndarray | None = None
    trainings: int = 1
    seconds: float = 0.0
    data: Task | None = dataclasses.field(default=None, repr=False)
    page: pathlib.Path | None = None
    train: Callable[[np.ndarray, np.ndarray], keras.Model] | None = dataclasses.field(default=None, repr=False)

    @property
    def value(self) -> Any:
        """The value or the strength that was chosen."""
        return self.best.value

    @property
    def name(self) -> str:
        """The candidate that was chosen, or the value as text."""
        return self.best.name

    @functools.cached_property
    def issues(self) -> LabelIssues:
        """All labels, issues or not, the least score first, with the names of the classes; by `probabilities`.

        An issue is a label that is not the class that the probabilities and labels together say. Where the kind of
        noise is "none", the issues are the few of `analysis.find_label_issues`: there most others are right labels of
        hard examples, which a model needs.

        Of several annotators, the label of an example is its most probable class by their votes, of equals one at
        random; so an issue may be a tie. `vote_issues` calls it ambiguous, unless the model is sure.

        Raises:
            ValueError: for a result of `tune`.
        """
        return self._judged()[0].as_given(self._own_issues)

    @functools.cached_property
    def _own_issues(self) -> LabelIssues:
        """The same with the indices of `data`, which has no examples without a label."""
        task, p, diagnosis = self._judged()
        found = (find_label_issues if diagnosis.kind == "none" else issues_by_class)(p, task.y)
        if task.verified is not None:
            is_issue = found.is_issue & ~task.verified[found.index]
            found = dataclasses.replace(found, is_issue=is_issue, kind=np.where(is_issue, found.kind, ""))
        return dataclasses.replace(found, class_names=task.classes, example_names=task.index)

    @functools.cached_property
    def vote_issues(self) -> VoteIssues:
        """All votes of several annotators, the least score first: which of them are wrong, by model and votes together.

        The score is the probability of the vote's class by the model and the other annotators. The kind of an issue is
        "ambiguous" where no class has a probability of 0.9.

        Raises:
            ValueError: for one label for each example, or a result of `tune`.
        """
        task, p, _ = self._judged()
        if task.votes is None:
            rule = "be of a result of labels of several annotators, `y` (N, M)"
            raise ValueError(f"`vote_issues` must {rule}. Received: one label for each example")
        return task.as_given(vote_issues(p, task))

    @functools.cached_property
    def surest(self) -> np.ndarray:
        """Indices of the examples whose issues a model is trained without, `(n,)`, the least score first.

        They are all issues where the wrong labels depend on the class alone: any class, or whole classes swapped. Else
        they are those that `analysis.find_label_issues` finds, too: the others are hard examples that a model needs, as
        on labels of people (`benchmarks/real/choose.py`).

        Raises:
            ValueError: for a result of `tune`.
        """
        return self._judged()[0].places(self._own_surest)

    @functools.cached_property
    def _own_surest(self) -> np.ndarray:
        """The same with the indices of `data`."""
        (task, p, diagnosis), issues = self._judged(), self._own_issues
        wrong = issues.index[issues.is_issue]
        if diagnosis.kind in BY_CLASS:
            return wrong
        few = find_label_issues(p, task.y)
        return wrong[np.isin(wrong, few.index[few.is_issue])]

    def retrain(self, action: str = "drop") -> keras.Model:
        """A new model, trained like `model` without the surest issues: no fold is trained again.

        Args:
            action: "drop" trains without their examples, "correct" with the suggested classes.
        Raises:
            ValueError: for a result of `tune`, or one that was measured by validation data, which are not trained on.
        """
        check_choice("action", action, ACTIONS)
        if self.train is None:
            rule = (
                "be called on what `clean_labels` returned, or `choose` by folds: its issues are of what is trained on"
            )
            raise ValueError(f"`retrain` must {rule}. Received: a result of other data")
        return self.train(*self._cleaned(action))

    def _cleaned(self, action: str) -> tuple[np.ndarray, np.ndarray]:
        """The labels and the indices to train on, of `data`."""
        return cleaned(self._judged()[0].y, self._own_issues, self._own_surest, action)

    def next_labels(
        self, count: int, goal: str = "errors", verified_labels: Mapping | None = None, seed: int = 0
    ) -> NextLabels:
        """Which labels a person should check next, by `probabilities`: see `analysis.next_labels`.

        Verified ones are not proposed. What is verified is for `verified_labels` of the next call.

        Args:
            count: number of labels that are wanted.
            goal: "errors", "model" or "random".
            verified_labels: labels that were verified since, a dict as that of `choose`; None for none.
            seed: determines the draws.
        Raises:
            ValueError: for a result of `tune`, or more labels than are left.
        """
        task, p, _ = self._judged()
        before = [] if task.verified is None else np.flatnonzero(task.verified).tolist()
        known = dict.fromkeys([*before, *task.own_keys({} if verified_labels is None else verified_labels)])
        found = next_labels(p, task.y, count, goal=goal, verified_labels=known, seed=seed)
        return task.as_given(dataclasses.replace(found, class_names=task.classes, example_names=task.index))

    def verified_performance(self, verified_labels: Mapping, inclusion: Any = None) -> VerifiedPerformance:
        """How good the model of `probabilities` is, by labels that somebody has verified: `truth.verified_performance`.

        Labels are those that were given, also where `verified_labels` of the call that trained has put others in their
        place.

        Args:
            verified_labels: verified labels of examples that were drawn at random, a dict as that of `choose`.
            inclusion: probabilities of being drawn, a dict from the same indices or an array `(N,)`; None for equal
                ones.
        Raises:
            ValueError: for a result of `tune`, or as `truth.verified_performance`.
        """
        task, p, _ = self._judged()
        labels, there = task.as_it_was
        places = np.cumsum(there) - 1
        verified = {int(places[key]): label for key, label in task.own_keys(verified_labels).items() if there[key]}
        if isinstance(inclusion, Mapping):
            inclusion = {int(places[key]): value for key, value in task.own_keys(inclusion).items() if there[key]}
        elif inclusion is not None:
            inclusion = np.asarray(task.of_labelled(np.asarray(inclusion)))[there]
        names = task.classes.tolist()
        found = verified_performance(p[there], labels[there], verified, inclusion=inclusion, class_names=names)
        return dataclasses.replace(found, index=np.flatnonzero(there)[found.index])

    def report(self, path: str | os.PathLike = "report", **arguments: Any) -> pathlib.Path:
        """Writes a page about the labels, see `keras_het.report`, and returns its path.

        It shows the flagged labels with x if these are images, texts or a frame; `images`, `texts` and `frame` show
        other inputs.

        Args:
            path: the folder.
            arguments: arguments of `keras_het.report`, such as `texts`; a Series or a frame must have the index of x.
        Raises:
            ImportError: without Matplotlib or Jinja.
            ValueError: for a result of `tune`.
        """
        task, p, _ = self._judged()
        y, frame = task.with_index()
        given = {"probabilities": p, "issues": self._own_issues, "frame": frame}
        if task.labelled is not None and frame is None and not SHOWN & arguments.keys():
            given["texts"] = [f"row {place} of x" for place in np.flatnonzero(task.labelled)]
        shown = {name: task.of_labelled(value) if name in SHOWN else value for name, value in arguments.items()}
        model = part_on_features(self.model) if task.has_features else self.model
        return report(model, task.x, y, task.classes.tolist(), path, **{**given, **shown})

    def to_frame(self) -> Any:
        """The table as a `pandas.DataFrame`, a line for each `Score`; `issues.to_frame()` has the labels.

        Raises:
            ImportError: without pandas.
        """
        pandas = import_extra("pandas", "The table of candidates")
        return pandas.DataFrame([dataclasses.asdict(score) for score in self.table]).set_index("name")

    def __str__(self) -> str:
        made_of = "" if self.data is None else self.data.made_of
        lines = [*aligned(cells := self._cells(), left=range(len(cells[0]))), *filter(None, [self.reason, made_of])]
        if self.diagnosis is not None:  # what to begin with is news only where nothing was compared
            lines.append(self.diagnosis.evidence() if compares(self.table) else str(self.diagnosis))
        return "\n".join(lines + ([] if self.page is None else [f"report: {self.page}"]))

    def _repr_html_(self) -> str:
        """The same table for a notebook."""
        return f"{html_table(self._cells())}<p>{html.escape(self.reason)}</p>"

    def plot(self) -> Any:
        """The table as a `matplotlib.figure.Figure`: differences with their standard errors, or scores over values.

        Raises:
            ImportError: without matplotlib, which comes with the extra `demo`.
        """
        return drawn(self.table, self.best, self.criterion, self._title)

    def __getstate__(self) -> dict[str, Any]:
        """Without what only this process can do: the trainer of further models."""
        return {**self.__dict__, "train": None}

    def _judged(self) -> tuple[Task, np.ndarray, Diagnosis]:
        """The task, its probabilities and diagnosis."""
        if self.probabilities is None or self.data is None or self.diagnosis is None:
            rule = "be of a result of `choose` or `clean_labels`, which judge labels"
            raise ValueError(f"`issues` and `report` must {rule}. Received: one of `tune`")
        return self.data, self.probabilities, self.diagnosis

    @property
    def _title(self) -> str:
        """What a line of the table is."""
        return "candidate" if compares(self.table) else "value" if self.diagnosis is None else "model"

    def _cells(self) -> list[tuple[str, ...]]:
        return cells_of(self.table, self.best, self.criterion, self._title)


def finished(found: Result, report_path: Any, verbose: int) -> Result:
    """A result with its report, if one is wanted; prints it if that is wanted."""
    if report_path is not None:
        found = dataclasses.replace(found, page=found.report(report_path))
    if verbose:
        print(found)
    return found


def cleaned(labels: np.ndarray, issues: LabelIssues, wrong: np.ndarray, action: str) -> tuple[np.ndarray, np.ndarray]:
    """The labels with the suggested classes, if these are wanted, and the indices of the examples to train on.

    Args:
        labels: integers, `(N,)`.
        issues: suggested classes of all.
        wrong: indices of the examples to leave out, or to correct.
        action: one of `ACTIONS`.
    """
    if action == "drop":
        return labels, np.setdiff1d(np.arange(len(labels)), wrong)
    suggested = np.empty_like(labels)
    suggested[issues.index] = issues.suggested
    return np.where(np.isin(np.arange(len(labels)), wrong), suggested, labels), np.arange(len(labels))
