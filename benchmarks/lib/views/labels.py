"""Tables of methods and of what is found about labels."""

from benchmarks.lib.views.rows import BOUNDED, TASKS, bold, bounds_of, by_task, columns_of, dicts, picked, short, value

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


def one_training(of):
    """Wrong labels by one training, and what folds and inputs alone add to its ranking, for each data and noise."""
    others = {"five folds, confident learning": "five folds", "inputs alone": "inputs alone"}
    lines = [["labels", "one training: precision of ranking, cut, recall", "seconds", *others.values(), "its seconds"]]
    for data in ("digits", "words"):
        found = by_task(of("dynamics", f"wrong labels that are found, {data}"))
        for noise in dict.fromkeys(noise for noise, _ in found):
            own, folds = found[noise, "one training, mean margin"], found[noise, "five folds, confident learning"]
            measures = ", ".join(value(own[name]) for name in ("average precision", "precision", "recall"))
            added = [found[noise, name]["average precision"] for name in others]
            lines.append([f"{data}, {noise}", measures, own["seconds"], *added, folds["seconds"]])
    return lines


CHOICE_ELSEWHERE = {  # data of the choice that had no say in its rule, in plain words
    "images, 20%": "20% to the class that the image looks most like, twenty drawn classes, a convolutional network",
    "MNIST, 40%": "40%, the same, 3000 real images of MNIST, a convolutional network",
    "words, 45% of every second": TASKS["words, 45% of every second"],
    "table, 30% of one class": "30% of one class of two to the other, a table (breast cancer)",
}
KEPT = ("early stopping, 3 starts", "choose, 30 trainings", "chosen")  # columns of the choice elsewhere


def choice_elsewhere(of):
    """The choice of a method on data that had no say in its rule, a row for each."""
    lines = []
    for task, name in CHOICE_ELSEWHERE.items():
        head, row = of("choice", f"{task}: clean accuracy of early stopping, 3 starts, and points over it")[:2]
        lines = lines or [["wrong labels", *(title for title in head[1:] if title in KEPT)]]
        lines.append([name, *(cell for title, cell in zip(head, row, strict=True) if title in KEPT)])
    return lines


DEMO = "accuracy, and the wrong labels that are named"


def demo(of):
    """The demo on all seeds, with gains and losses of more than two standard errors in bold."""
    head, *rows = of("demo", DEMO)
    place = head.index("points")
    return [head, *([*row[:place], bold(row[place]), *row[place + 1 :]] for row in rows)]


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
