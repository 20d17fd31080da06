"""Tables of methods and of what is found about labels."""

import numpy as np

from benchmarks.lib.views.rows import BOUNDED, TASKS, bounds_of, by_task, columns_of, dicts, picked, short, value

ISSUES = {
    "look-alikes, 20%": "20% are those of a look-alike",
    "random, 20%": "20% are anything",
    "pairs and random": "three pairs swapped, and 8% anything",
}


def when_it_pays(of):
    """The full head beside Dense, a row for each task, and what is possible at all where that is known."""
    found = by_task(of("recipe", "beside Dense, all chosen by noisy NLL"))
    columns, bounds = ("clean accuracy", "clean NLL", "clean ECE"), bounds_of(of)
    head = ["wrong labels", "Dense: accuracy", "NLL", "ECE", "full head: accuracy", "NLL", "ECE", "ECE, noisy labels"]
    lines = [[*head, "accuracy at most", "noisy NLL above its floor: Dense, full"]]
    for task in TASKS:
        dense, full = found[task, "Dense"], found[task, "full"]
        cells = [*(value(dense[name]) for name in columns), *(full[name] for name in (*columns, "noisy ECE"))]
        bound = bounds.get(BOUNDED.get(task))
        lines.append([TASKS[task], *cells, *(possible(dense, full, bound) if bound else ("", ""))])
    return lines


def possible(dense, full, bound):
    """The ceiling of the clean accuracy, and how far the noisy NLL of Dense and of the full head is from its floor."""
    above = float(value(dense["noisy NLL"])) - float(bound["noisy NLL"])
    return bound["clean accuracy"], f"{above:.3f}, {above + float(value(full['noisy NLL'])):.3f}"


def narrow(of):
    """Figures of Dense, and what the narrow and the full head add to them, a row for each task and method."""
    tables = [dicts(of("harm", f"tasks without a say: {figure}, beside Dense")) for figure in NARROW_FIGURES]
    lines = [["wrong labels", "head", *NARROW_FIGURES]]
    for place in [name for name in tables[0][0] if name != "candidate"]:
        for rows in zip(*tables, strict=True):
            head = rows[0]["candidate"]
            if head in NARROW_HEADS:
                name = in_words(place) if head == NARROW_HEADS[0] else ""
                lines.append([name, head, *(row[place] for row in rows)])
    return lines


def in_words(place):
    """A task of `harm.json`, which names the examples of each class behind its name, in plain words."""
    return ALONE.get(place) or TASKS[place]


NARROW_HEADS = ("Dense", "full", "narrow, 16", "three factors, narrow")
NARROW_FIGURES = ("clean accuracy", "clean NLL", "noisy NLL")
ALONE = {  # the words of tasks whose neighbours do not stand beside them
    "groups, 100 classes, 100 each": "40% to any of four look-alikes, 100 classes of 100 examples",
    "images, 20%": "20% to the class that the image looks most like, twenty drawn classes, a convolutional network",
    "digits, 20%": "20% to the class that the image looks most like, digits",
    "MNIST, 40%": "40% to the class that the image looks most like, 3000 of MNIST, a convolutional network",
}


def swapped_classes(of):
    """Errors by method, and how far the learned T is from the true one."""
    chosen = {
        ("random", "50%"): "a random T, 50%",
        ("random", "65%"): "a random T, 65%",
        ("pair", "45%"): "to the next class, 45%",
        ("symmetric", "50%"): "symmetric, 50%",
    }
    methods = {
        "none": "crossentropy",
        "none, stopped early": "stopped early",
        "learned T": "learned T",
        "true T": "true T",
    }
    lines = [["noise", *methods.values(), "TV of T and the learned one"]]
    for (noise, share), words in chosen.items():
        errors = columns_of(of("label_flip", f"error on clean test data, {noise} flips, by their share"))
        distances = columns_of(of("label_flip", f"total variation to the true T, {noise} flips"))
        lines.append(
            [
                words,
                *(value(errors[method, share]) for method in methods),
                f"{float(value(distances['learned T', share])):.2f}",
            ]
        )
    return lines


def wrong_labels(of):
    """Ranking, precision and recall of Dense, and what each method adds to them."""
    found = by_task(of("label_issues", "wrong labels that are found"))
    measures = ("average precision", "precision", "recall")
    names = {
        "full": "full head",
        "Dense and a learned T": "Dense and a learned T",
        "cleanlab": "cleanlab, by Dense's probabilities",
    }
    lines = [["labels", "Dense: precision of ranking, cut, recall", *names.values()]]
    for task, words in ISSUES.items():
        cells = [[found[task, method][measure] for measure in measures] for method in ("Dense", *names)]
        lines.append([words, *(", ".join(map(short, row)) for row in cells)])
    return lines


def begin_with(of):
    """The advice on methods, with the figures that speak for each row."""
    return [["your labels", "begin with", "points of accuracy gained"], *([*line] for line in _advised(of))]


def _advised(of):
    """(labels, method and where to read on, figures) of each row; first of labels of people and rules."""
    advised = {row["your noise looks like"]: row for row in dicts(of("arena_digits", "begin with"))}
    made = {noise: points.replace("*", "") for noise, points in _by_choose(of, "digits").items()}
    real = _by_real_choose(of)
    smoothed = [advised[noise]["points over early stopping, left-out seeds"].replace("*", "") for noise in SMOOTHED]
    gained = [float(value(points)) for points in real.values()]
    error = np.std(gained, ddof=1) / np.sqrt(len(gained))
    over = (
        f"{_range(real.values())}, mean {np.mean(gained):+.1f} +- {error:.1f}, on {len(real)} sets of labels of people"
    )
    rules = f"{_range(real[name] for name in RULES)} on {len(RULES)} sets of labels of rules"
    figures = (
        f"{over} and rules; {_range(made.values())} with labels that we made wrong",
        f"{smoothed[0]}; {smoothed[1]} with such examples (made)",
        f"{rules}; {made['pair']} swapped in pairs (made)",
        f"the head over a Dense layer: {', '.join(f'{_by_head(of, name)} ({name})' for name in CONFUSED)}",
    )
    for (text, method), pages, points in zip(ADVICE.items(), READ_ON, figures, strict=True):
        yield text, f"{method} ({pages})", points


def _range(points):
    """The least and the largest of the means of some cells."""
    means = [float(value(cell)) for cell in points]
    return f"{min(means):+.1f} to {max(means):+.1f}"


def _by_real_choose(of):
    """The points of `choose` over Dense with early stopping, by set of labels of people and rules."""
    titles = (f"points over Dense, {half}" for half in ("sets that decided", "sets that had no say"))
    return {row["set"]: row["choose"] for title in titles for row in dicts(of("real_choose", title))}


def _by_head(of, name):
    """The points of the full head over Dense, all chosen by noisy accuracy, on the largest part of a set."""
    rows = dicts(of("real_heads", f"{name}, {CONFUSED[name]} labels, by noisy accuracy"))
    mean, error = next(row["accuracy - Dense's"] for row in rows if row["head"] == "full").split(" +- ")
    return f"{100 * float(mean):+.1f} +- {100 * float(error):.1f}"


def _by_choose(of, task):
    """The points of `choose` over early stopping with three starts, for each noise of some data."""
    rows = dicts(of("choice", f"{task}: clean accuracy of early stopping, 3 starts, and points over it"))
    return {row["noise"]: row["choose, 30 trainings"] for row in rows if row["noise"] != "mean"}


# What "your labels ..." are, and the method to begin with.
ADVICE = {
    "may be wrong, you do not know how; or name any other class, at random (symmetric)": "`labels.choose`",
    "are right, or nearly; or are of examples that belong to no class": "label smoothing: "
    "`losses.SmoothedCrossentropy`",
    "are swapped between whole classes (class-dependent)": "`labels.choose`; by hand, "
    "`losses.ForwardCorrectedCrossentropy` with the `transition` of `labels.diagnose`",
    "name a class that the example looks like (instance-dependent)": "`labels.choose` with the head, "
    "`labels.methods.Heteroscedastic()`, among its `methods`",
}
RULES = ("TREC", "youtube", "Hausa")  # sets whose labels are of rules
CONFUSED = {"CIFAR-10N worst": 50000, "CIFAR-100N": 45000}  # sets of the head, and their labels
SMOOTHED = ("none", "outliers")  # noises for which label smoothing is named
READ_ON = (
    "[how](docs/choose.md)",
    "[code](docs/choose.md#each-row-in-code)",
    "[code](docs/choose.md#each-row-in-code)",
    "[when it pays](docs/when-it-pays.md)",
)


def diabetes(of):
    """Regressions of one target."""
    return regressions(of("regression", "diabetes"))


def linnerud(of):
    """Regressions of three targets of twenty examples."""
    return regressions(of("regression", "linnerud"))


def planted_covariance(of):
    """Regressions of five targets with a known covariance."""
    return regressions(of("regression", "planted covariance"), "rank correlation", "Frobenius error")


def regressions(table, *more):
    """Chosen columns of a table of `labels.regression`."""
    return picked(table, "model", "NLL", "NLL beside constant variance", "RMSE", "inside 90%", *more)
