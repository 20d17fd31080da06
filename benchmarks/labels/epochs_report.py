"""The report of epochs.py: the epochs that rules choose by noisy labels, and the clean figures there."""

import numpy as np

from benchmarks.lib.lines import distinct, select, with_error

FIGURES = ("noisy losses", "noisy right", "clean NLL", "clean accuracy")
CLEAN = ("clean accuracy", "clean NLL")


def near(values, best):
    """Whether the mean of each epoch is within a paired standard error of the epoch `best`; `(epochs, N)`, of `(N,)`.

    Larger values are better.
    """
    below = values[best] - values
    return below.mean(1) <= below.std(1, ddof=1) / np.sqrt(values.shape[1])


def misses(right, chosen):
    """Whether a later epoch than the chosen one has more right labels, by more than two paired standard errors."""
    above = right[chosen + 1 :] - right[chosen].astype(float)
    return bool(np.any(above.mean(1) > 2 * above.std(1, ddof=1) / np.sqrt(right.shape[1])))


def accuracy_near_least_loss(losses, right):
    """The best accuracy among the epochs whose loss is within a standard error of the least."""
    return np.where(near(-losses, losses.mean(1).argmin()), right.mean(1), -1.0).argmax()


def loss_near_best_accuracy(losses, right):
    """The least loss among the epochs whose accuracy is within a standard error of the best."""
    return np.where(near(right.astype(float), right.mean(1).argmax()), losses.mean(1), np.inf).argmin()


RULES = {  # functions of losses, and of which labels are right, both `(epochs, N)`: an epoch, counted from 0
    "noisy NLL": lambda losses, right: losses.mean(1).argmin(),
    "noisy accuracy": lambda losses, right: right.mean(1).argmax(),
    "accuracy, NLL within 1 s.e.": accuracy_near_least_loss,
    "NLL, accuracy within 1 s.e.": loss_near_best_accuracy,
    "accuracy, latest of equals": lambda losses, right: len(right) - 1 - right.mean(1)[::-1].argmax(),
    "latest, accuracy within 1 s.e.": lambda losses, right: np.flatnonzero(
        near(right.astype(float), right.mean(1).argmax())
    )[-1],
    "last epoch": lambda losses, right: len(right) - 1,
}
FIRST, SECOND = list(RULES)[:2]
LENGTHS = (1, 2, 4)  # multiples of the epochs of a task


def chosen(run, rule, length):
    """The epoch, from 0, that a rule chooses among `length` times the epochs of the task."""
    losses, right = (run[name][: length * run["epochs"]] for name in FIGURES[:2])
    return int(RULES[rule](losses, right))


def at_chosen(runs, rule, length, figure):
    """A figure of each run at the epoch that a rule chooses, `(runs,)`."""
    return np.array([run[figure][chosen(run, rule, length)] for run in runs])


def groups(runs, method):
    """`(task, length, runs)` for each length that all runs of a task have."""
    for task in distinct(runs, "task"):
        own = select(runs, task=task, method=method)
        for length in LENGTHS:
            if own and all(len(run["clean NLL"]) >= length * run["epochs"] for run in own):
                yield task, length, own


def by_task(runs, figure):
    """A row for each method, task and length: the mean of a figure at the epoch that each rule chooses."""
    lines = [["method", "task", "epochs", "seeds", *RULES]]
    for method in distinct(runs, "method"):
        for task, length, own in groups(runs, method):
            cells = [with_error(at_chosen(own, rule, length, figure)) for rule in RULES]
            lines.append([method, task, str(length * own[0]["epochs"]), str(len(own)), *cells])
    return lines


def gains(runs, figure):
    """A row for each method and rule: what it adds to the epoch of the least noisy NLL, mean and error over the tasks.

    In brackets the tasks where the figure is larger, and where it is smaller, by more than two standard errors over
    the seeds.
    """
    lines = [["method", "rule", *(f"epochs x{length}" for length in LENGTHS)]]
    for method in distinct(runs, "method"):
        for rule in list(RULES)[1:]:
            lines.append([method, rule, *(_gain(runs, method, rule, length, figure) for length in LENGTHS)])
    return lines


def _gain(runs, method, rule, length, figure):
    """A cell of `gains`."""
    found = [
        at_chosen(own, rule, length, figure) - at_chosen(own, FIRST, length, figure)
        for _, each, own in groups(runs, method)
        if each == length
    ]
    if not found:
        return ""
    clear = [np.sign(gain.mean()) for gain in found if len(gain) > 1 and abs(gain.mean()) > 2 * _error(gain)]
    text = with_error([gain.mean() for gain in found])
    return f"{text if text.startswith('-') else f'+{text}'} ({clear.count(1)} larger, {clear.count(-1)} smaller)"


def _error(values):
    """The standard error of a mean."""
    return values.std(ddof=1) / np.sqrt(len(values))


def missed(runs):
    """A row for each method and length: in how many runs a later epoch is clearly better by noisy accuracy.

    Then the clean accuracy that the epoch of the best noisy accuracy adds to the one of the least noisy NLL there, and
    in the other runs.
    """
    lines = [["method", "epochs", "runs", "missed", "clean accuracy added there", "and in the others"]]
    for method in distinct(runs, "method"):
        for length in LENGTHS:
            own = [run for _, each, found in groups(runs, method) if each == length for run in found]
            late = [misses(run["noisy right"][: length * run["epochs"]], chosen(run, FIRST, length)) for run in own]
            gain = at_chosen(own, SECOND, length, CLEAN[0]) - at_chosen(own, FIRST, length, CLEAN[0])
            parts = gain[np.array(late, bool)], gain[~np.array(late, bool)]
            cells = [with_error(part) if len(part) else "" for part in parts]
            lines.append([method, f"x{length}", str(len(own)), str(sum(late)), *cells])
    return lines


def late(runs):
    """A row for each method and length: in how many runs the epoch of the least noisy NLL is among the last tenth.

    Then the clean accuracy that twice as many epochs add to the epoch that is chosen so there, and in the other runs.
    """
    lines = [["method", "epochs", "runs", "late", "clean accuracy added by twice as many", "and in the others"]]
    for method in distinct(runs, "method"):
        for length in LENGTHS[:-1]:
            own = [run for _, each, found in groups(runs, method) if each == 2 * length for run in found]
            last = np.array([chosen(run, FIRST, length) + 1 > 0.9 * length * run["epochs"] for run in own], bool)
            gain = at_chosen(own, FIRST, 2 * length, CLEAN[0]) - at_chosen(own, FIRST, length, CLEAN[0])
            cells = [with_error(part) if len(part) else "" for part in (gain[last], gain[~last])]
            lines.append([method, f"x{length}", str(len(own)), str(last.sum()), *cells])
    return lines


def describe(runs, halves):
    """The tables of the report by their titles; `halves` are lists of tasks by their names."""
    tables = {}
    for half, names in halves.items():
        own = [run for run in runs if run["task"] in names]
        for figure in CLEAN if own else ():
            tables[f"{half}: {figure} added to the epoch of the least noisy NLL"] = gains(own, figure)
            tables[f"{half}: {figure}"] = by_task(own, figure)
    tables["a later epoch is clearly better by noisy accuracy"] = missed(runs)
    tables["the best epoch is among the last"] = late(runs)
    return tables
