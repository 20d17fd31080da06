"""Tables of floors, and of the heads and candidates beside them."""

from benchmarks.lib.views.rows import BOUNDED, TASKS, bounds_of, by_task, value


def floors(of):
    """Bounds of the tasks of the atlas, and what the ideal model of noisy labels is as one of the true classes."""
    names = {
        "noisy NLL": "noisy NLL at least",
        "noisy accuracy": "noisy accuracy at most",
        "clean accuracy": "clean accuracy at most",
        "ideal: clean accuracy": "the ideal: clean accuracy",
        "ideal: clean ECE": "clean ECE",
        "ideal: clean NLL": "clean NLL",
    }
    lines = [["wrong labels", "classes", *names.values()]]
    for (noise, classes), row in bounds_of(of).items():
        lines.append([ATLAS[noise], classes, *(row[name] for name in names)])
    return lines


ATLAS = {  # kinds of noise in plain words
    "by class": "40% to one class of another group",
    "by group": "40% to any other class of the group",
    "by group, rate by input": "the same, 5% or 75% by one coordinate",
    "look-alike, rate by input": "5% or 75% to the class that it looks most like",
}


def distances(of):
    """How far each method is from the floor of the noisy NLL, in the words of a page."""
    head, *rows = of("floors", "distance to the floor beside Dense, epoch by noisy NLL")
    return [["wrong labels", *head[1:]], *([ATLAS[row[0]], *row[1:]] for row in rows)]


def floors_of_recipe(of):
    """The recipe's tasks that have bounds, all chosen by noisy NLL: how far Dense is from them, and each head."""
    bounds, names = bounds_of(of), ("noisy NLL above its floor", "clean accuracy below its ceiling")
    lines = [["wrong labels", "method", *names, "clean ECE", "the ideal's"]]
    for task, key in BOUNDED.items():
        found = by_task(of(BOUNDED_RECIPE[task], "beside Dense, all chosen by noisy NLL"))
        plain, bound = found[task, "Dense"], bounds[key]
        for (name, method), row in found.items():
            if name == task:
                nll, accuracy, ece = (
                    total(plain, row, figure) for figure in ("noisy NLL", "clean accuracy", "clean ECE")
                )
                below = [nll - float(bound["noisy NLL"]), float(bound["clean accuracy"]) - accuracy, ece]
                reference = float(bound["ideal: clean ECE"])
                lines.append([TASKS[task], method, *(f"{cell:.3f}" for cell in (*below, reference))])
    return lines


def total(plain, row, figure):
    """A figure of a row of gains: Dense's, and what is added to it."""
    own = float(value(row[figure]))
    return own if row is plain else float(value(plain[figure])) + own


BOUNDED_RECIPE = {  # the result files with the most methods
    "groups, 1000 classes, 20 each": "recipe_links_1000",
    "groups, 100 classes, 100 each": "recipe",
}


def narrow(of):
    """The narrow head, the full one and Dense: what each adds to Dense's figures, a row for each task and method."""
    heads = ("Dense", "full", "narrow, 16", "three factors, narrow")
    head, *rows = by_place(of, "tasks without a say", ("clean accuracy", "clean NLL", "noisy NLL"))
    return [head, *(row for row in rows if row[1] in heads)]


CANDIDATES = (  # of the candidates that may do no harm
    "Dense",
    "full",
    "narrow, 16",
    "three factors, narrow",
    "noise at a third of the rate",
    "Dense first, then all",
    "Dense first, then the noise",
    "Dense or full",
    "Dense or three factors, narrow",
)


def harm_accuracy(of):
    """The clean accuracy of the best candidates on the atlas with ten classes."""
    return of_candidates(of("harm", "10 classes: clean accuracy, beside Dense"))


def harm_nll(of):
    """The clean NLL of the best candidates on the atlas with ten classes."""
    return of_candidates(of("harm", "10 classes: clean NLL, beside Dense"))


def of_candidates(table):
    """The rows of the candidates of `CANDIDATES`."""
    return [table[0], *(row for row in table[1:] if row[0] in CANDIDATES)]


def harm_100(of):
    """The best candidates on the atlas with 100 classes, a row for each task and candidate."""
    return by_place(of, "100 classes", ("distance", "clean accuracy", "clean NLL"))


def harm_elsewhere(of):
    """The best candidates on tasks that had no say, a row for each task and candidate."""
    return by_place(of, "tasks without a say", ("noisy NLL", "clean accuracy", "clean NLL"))


def by_place(of, scope, figures):
    """Tables of the candidates, one for each figure, as one."""
    tables = {figure: of_candidates(of("harm", f"{scope}: {figure}, beside Dense")) for figure in figures}
    (_, *places), *rows = tables[figures[0]]
    lines = [["wrong labels", "head", *figures]]
    for column, place in enumerate(places, start=1):
        for number, row in enumerate(rows, start=1):
            cells = [tables[figure][number][column] for figure in figures]
            if any(cells):
                lines.append([in_words(place) if number == 1 else "", row[0], *cells])
    return lines


def in_words(place):
    """A task of the recipe, or one of the atlas with the examples of each class, in plain words."""
    noise, each = place.rsplit(", ", 1)
    return f"{ATLAS[noise]}, {each}" if noise in ATLAS else ALONE.get(place) or TASKS[place]


ALONE = {  # the words of tasks whose neighbours do not stand beside them
    "groups, 100 classes, 100 each": "40% to any of four look-alikes, 100 classes of 100 examples",
    "images, 20%": "20% to the class that the image looks most like, twenty drawn classes, a convolutional network",
    "digits, 20%": "20% to the class that the image looks most like, digits",
    "MNIST, 40%": "40% to the class that the image looks most like, 3000 of MNIST, a convolutional network",
}
