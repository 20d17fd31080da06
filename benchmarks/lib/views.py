"""Tables of pages that are made of others: chosen rows and columns, in plain words.

Each takes `of(name, title)`, which returns the table of a result file, and returns a table: rows of strings, the first
its head.
"""

import re

TASKS = {  # in plain words
    "digits, 40%": "40% to the class that the image looks most like, digits",
    "MNIST, 40%": "the same, 3000 real images of MNIST, a convolutional network",
    "images, 20%": "20%, the same, twenty drawn look-alike classes, a convolutional network",
    "digits, 20%": "20%, the same, digits",
    "groups, 1000 classes, 20 each": "40% to any of four look-alikes, 1000 classes of 20 examples",
    "groups, 100 classes, 100 each": "the same, 100 classes of 100 examples",
    "digits, 40% symmetric": "40% to any class, digits",
    "words, 45% of every second": "45% of one class of every pair to the other, words of twelve languages",
    "digits, 0%": "none, digits",
}
ISSUES = {
    "look-alikes, 20%": "20% are those of a look-alike",
    "random, 20%": "20% are anything",
    "pairs and random": "three pairs swapped, and 8% anything",
}


BOUNDED = {  # tasks whose bounds are known: noise and classes in the atlas of floors
    "groups, 1000 classes, 20 each": ("by group", "1000"),
    "groups, 100 classes, 100 each": ("by group", "100"),
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


def bounds_of(of):
    """`{(noise, classes): {figure: cell}}` of the atlas of floors."""
    rows = _dicts(of("floors", "bounds and reference points"))
    return {(row["noise"], row["classes"]): row for row in rows}


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


def by_task(table):
    """`{(task, method): {column: cell}}` of a table whose rows name the task only where it changes."""
    found, task = {}, ""
    for row in table[1:]:
        task = re.sub(r" \(\d+%\)$", "", row[0]) or task  # without the share of wrong labels that was counted
        found[task, row[1]] = dict(zip(table[0], row, strict=True))
    return found


def value(cell):
    """A cell without its standard error."""
    return cell.replace("*", "").split(" +- ")[0]


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


def columns_of(table):
    """`{(first cell of a row, column): cell}`."""
    return {(row[0], column): cell for row in table[1:] for column, cell in zip(table[0][1:], row[1:], strict=True)}


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
    """Wrong labels by one training, and what folds and neighbours add to its ranking, a row for each data and noise."""
    others = {"five folds, confident learning": "five folds", "neighbours of inputs": "neighbours of inputs"}
    lines = [["labels", "one training: precision of ranking, cut, recall", "seconds", *others.values(), "its seconds"]]
    for data, name in (("digits", "dynamics"), ("mnist", "dynamics_mnist"), ("words", "dynamics")):
        found = by_task(of(name, f"wrong labels that are found, {data}"))
        for noise in dict.fromkeys(noise for noise, _ in found):
            own, folds = found[noise, "one training, mean margin"], found[noise, "five folds, confident learning"]
            measures = ", ".join(value(own[name]) for name in ("average precision", "precision", "recall"))
            added = [found[noise, name]["average precision"] for name in others]
            lines.append([f"{data}, {noise}", measures, own["seconds"], *added, folds["seconds"]])
    return lines


def label_wave(of):
    """Clean accuracy of early stopping by noisy labels, and what Label Wave adds to it, a row for each noise."""
    found = by_task(of("dynamics_stopping", "when to stop"))
    names = {"Label Wave": "Label Wave", "Label Wave, validation examples too": "the same, validation examples too"}
    lines = [["wrong labels, digits", "early stopping, noisy labels", "epochs", *names.values(), "epochs"]]
    for noise in dict.fromkeys(noise for noise, _ in found):
        base, *waves = (found[noise, name] for name in ("early stopping, noisy labels", *names))
        added = [wave["clean accuracy"] for wave in waves]
        lines.append([noise, base["clean accuracy"], base["epochs trained"], *added, waves[0]["epochs trained"]])
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


def short(cell):
    """A cell without its standard error, still bold if it was."""
    return f"**{value(cell)}**" if cell.startswith("**") else value(cell)


def beside_edward2(of):
    """The best mode of each package, and the time to the same error."""
    head, *rows = of("peers", "seconds and memory of a step")
    found = [dict(zip(head, row, strict=True)) for row in rows]
    times = [dict(zip(*pair, strict=True)) for pair in _pairs(of("peers", "time to the error of edward2"))]
    lines = [["one training step", "edward2, best mode", "keras_het"]]
    sizes = {"softmax full": "softmax, full, B=128, D=2048, K=1000, R=15, 1000 nodes"}
    sizes["sigmoid parameter-efficient"] = "sigmoid, parameter-efficient, B=16, K=21,843, R=50"
    for name, words in sizes.items():
        best = [
            min((r for r in found if (r["head"], r["package"]) == (name, package)), key=_step)
            for package in ("edward2", "keras_het")
        ]
        lines.append([words, *(f"{_step(row):.0f} ms, {row['over S=1 MiB']} MiB over one node" for row in best)])
    deviations = ", ".join(row["sd"] for row in times)
    ratios = ", ".join(f"{float(row['ratio']):.2f}" for row in times)
    lines.insert(
        2, [f"the same error of log p at noise of standard deviation {deviations}", "1", f"{ratios} of its time"]
    )
    return lines


def _pairs(table):
    return [(table[0], row) for row in table[1:]]


def _step(row):
    return float(row["step ms (quartiles)"].split(" ")[0])


def nodes(of):
    """The gains and costs of more nodes, a column for each number of them."""
    trained = {row["trained"]: row for row in _dicts(of("nodes", "training with S nodes"))}
    predicted = {row["S"]: row for row in _dicts(of("nodes", "predicting with S nodes, after training with 256"))}
    chosen = next(name for name in trained if name.startswith("Dense, selected"))
    counts = ("16", "64", "256")
    lines = [["nodes S", *counts, "Dense, all chosen", "possible"]]
    ceiling = bounds_of(of)[BOUNDED["groups, 1000 classes, 20 each"]]["clean accuracy"]
    for name in ("NLL", "accuracy", "training noise", "ms per step"):
        cells = [trained[f"S = {count}"][name] for count in counts]
        dense = "" if name == "training noise" else trained[chosen][name]
        bound = f"at most {ceiling}" if name == "accuracy" else ""
        lines.append([f"trained with S: {NODES.get(name, name)}", *cells, dense, bound])
    errors = [predicted[count]["error"] for count in counts]
    return [*lines, ["trained with 256, predicting with S: error of log p", *errors, "", ""]]


NODES = {"training noise": "training noise, how far log p of two runs differs"}


def _dicts(table):
    return [dict(zip(table[0], row, strict=True)) for row in table[1:]]


def speed(of):
    """Step and prediction of every head at the base size, on three backends."""
    lines = [["backend", "head", *(f"{mode}: {name}" for mode in ("step", "predict") for name in SPEED)]]
    steps, predictions = ([row for row in _dicts(of("speed", title)) if _is_base(row)] for title in SPEEDS)
    for step, prediction in zip(steps, predictions, strict=True):
        figures = [row[name] for row in (step, prediction) for name in SPEED]
        lines.append([step["backend"], step["head"], *figures])
    return lines


SPEEDS = ("train, D=2048", "predict, D=2048")
SPEED = ("ms (quartiles)", "times Dense", "times floor")


def _is_base(row):
    return (row["B"], row["K"]) == ("128", "1000") and row["R"] in ("", "15") and row["S"] in ("", "256")


def backbone(of):
    """The share of the head in a prediction, a column for each backend."""
    backends = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}
    tables = [_dicts(of(f"backbone_{backend}", "share of the head in a prediction")) for backend in backends]
    lines = [["head", *(f"{name}: {figure}" for name in backends.values() for figure in ("whole ms", "share"))]]
    for rows in zip(*tables, strict=True):
        lines.append([rows[0]["head"], *(row[figure] for row in rows for figure in ("whole ms", "share"))])
    return lines


def clean_probabilities(of):
    """Accuracy, and the ECE by the number of clean labels, of three ways to get probabilities of the true classes."""
    ways = ("Dense", "full", "Dense and a learned T")
    lines = [["labels", *(f"{way}: {name}" for way in ways for name in ("accuracy", "ECE with 0, 50, 200"))]]
    for task in ("digits, 40%", "digits, 20%", "digits, 40% symmetric", "words, 45% of every second", "images, 20%"):
        cells = []
        for way in ways:
            own = [row for row in _dicts(of("clean_probabilities", task)) if row["model"] == way]
            cells += [value(own[0]["accuracy"]), ", ".join(value(row["ECE"]) for row in own)]
        lines.append([TASKS[task].removeprefix("the same, "), *cells])
    return lines


def estimate(of):
    """Planned and measured costs of every head, averaged over the default nodes."""
    head, *rows = of("estimate", '{"units": 1000, "features": 2048, "batch": 128}')
    return [head, *(row for row in rows if row[1] == "QuasiMonteCarlo")]


def gpu_speed(of):
    """Seconds and memory on a card at the base size, of both backends."""
    tables = {backend: of(f"gpu_speed_{backend}", "speed") for backend in ("jax", "torch")}
    head = tables["jax"][0]
    rows = [(backend, row) for backend, table in tables.items() for row in table[1:]]
    chosen = [[backend, *row] for backend, row in rows if _is_base(dict(zip(head, row, strict=True)))]
    return [["backend", *head], *chosen]


DEMO = "accuracy, and the wrong labels that are named"


def demo(of):
    """The demo on all seeds, with gains and losses of more than two standard errors in bold."""
    head, *rows = of("demo", DEMO)
    place = head.index("points")
    return [head, *([*row[:place], _bold(row[place]), *row[place + 1 :]] for row in rows)]


def _bold(cell):
    mean, error = map(float, cell.split(" +- "))
    return f"**{cell}**" if abs(mean) > 2.0 * error else cell


def begin_with(of):
    """The method to begin with for each kind of labels, in plain words: the arena's own choices, by its own rule.

    A name stands where its gain over early stopping is beyond three standard errors on seeds that did not choose it.
    Three rows come from experiments of their own.
    """
    arena = {row["your noise looks like"]: row for row in _dicts(of("arena_digits", "begin with"))}
    lines = [["your labels", "begin with", "points of accuracy over early stopping"]]
    gained = [row["points"] for row in _dicts(demo(of))]
    low, *_, high = sorted(map(value, gained), key=float)
    points = f"{low} to {high}, clear on {sum('**' in cell for cell in gained)} of {len(gained)} (first table)"
    lines.append(["may be wrong, and you do not know how", f"`keras_het.choose` ({HOW['choose']})", points])
    for noise, words in NOISES.items():
        row = arena[noise]
        found = row["begin with"]
        best = row["within two standard errors of the best"].split("; ")[0]
        begin = SPELLED.get(found) or f"early stopping; better on average: {best}"
        lines.append([words, begin, row["points over early stopping, left-out seeds"].replace("*", "")])
    head = by_task(of("recipe", "beside Dense, all chosen by noisy NLL"))["MNIST, 40%", "full"]["clean accuracy"]
    mean, error = (100 * float(part) for part in head.split(" +- "))
    lines.append(
        ["the same, images and a convolutional network", f"the head ({HOW['gain']})", f"{mean:+.1f} +- {error:.1f}"]
    )
    lines.append(["come from several people", f"`NoiseTransition(num_annotators=M)` ({HOW['T']})", "not in the arena"])
    return lines


NOISES = {  # of the arena, in the words of a user
    "none": "are right, or nearly",
    "symmetric": "name any other class, at random",
    "random": "name other classes by a pattern of each class",
    "pair": "are swapped between whole classes",
    "weak raters": "come from weak raters or models",
    "outliers": "are of examples that belong to no class",
    "look-alike": "name a class that the example looks like",
}
SPELLED = {
    "label smoothing": "label smoothing: `losses.SmoothedCrossentropy`",
    "symmetric crossentropy": "`losses.SymmetricCrossentropy`",
    "self-paced": "`losses.SelfPacedCrossentropy`",
}
HOW = {
    "choose": "[how](docs/choose.md)",
    "gain": "[when it pays](docs/when-it-pays.md)",
    "T": "[how](docs/swapped-classes.md)",
}


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
    return _columns(table, "model", "NLL", "NLL beside constant variance", "RMSE", "inside 90%", *more)


TRUTH = "accuracy against the true classes, by 1,000 noisy labels"


def true_accuracy(of):
    """How often intervals of the clean accuracy hold it, without the figures that a page does not discuss."""
    names = ("task", "T", "95% interval holds it", "true accuracy", "mean estimate", "half width")
    return _columns(of("truth", TRUTH), *names, "part of the error of T")


def true_sets(of):
    """The cover and the size of sets for the true class."""
    table = of("truth", "sets that shall hold the true class in 90%")
    return _columns(table, "task", "sets", "mean cover", "its deviation", "mean size")


def transition_checks(of):
    """What the check says, and the clean labels that it promises."""
    return of("truth", "check_transition by clean labels")


def _columns(table, *names):
    places = [table[0].index(name) for name in names]
    return [[row[place] for place in places] for row in table]


def narrow(of):
    """The narrow head, the full one and Dense: what each adds to Dense's figures, a row for each task and method."""
    heads = ("Dense", "full", "narrow, 16", "three factors, narrow")
    head, *rows = by_place(of, "tasks without a say", ("clean accuracy", "clean NLL", "noisy NLL"))
    return [head, *(row for row in rows if row[1] in heads)]


def speed_narrow(of):
    """Times of the narrow, the full and the parameter-efficient head, and their memory and weights."""
    lines = [["backend", "head", "step: times Dense", "predict: times Dense", "step: peak MiB", "million weights"]]
    for backend in ("jax", "tensorflow", "torch"):
        steps, predictions = (_dicts(of(f"speed_narrow_{backend}", title)) for title in SPEEDS)
        for step, prediction in zip(steps, predictions, strict=True):
            times = step["times Dense"], prediction["times Dense"]
            lines.append([backend, step["head"], *times, step["peak MiB"], step["million weights"]])
    return lines


def compiled_blocks(of):
    """Times of a step and of a prediction on JAX, and on PyTorch without and with a compiler, by nodes."""
    columns = (f"{mode}: {figure}" for mode in ("step", "predict") for figure in ("ms", "times JAX"))
    lines = [["head", "nodes", "backend", *columns]]
    for nodes in ("256", "1024"):
        steps, predictions = (_dicts(of(f"speed_compile_blocks_{nodes}", title)) for title in SPEEDS)
        for head in dict.fromkeys(row["head"] for row in steps):
            own = [[row for row in rows if row["head"] == head] for rows in (steps, predictions)]
            for pair in zip(*own, strict=True):
                times = [float(row["ms (quartiles)"].split()[0]) for row in pair]
                jax = [float(rows[0]["ms (quartiles)"].split()[0]) for rows in own]
                figures = [x for ms, least in zip(times, jax, strict=True) for x in (f"{ms:.0f}", f"{ms / least:.1f}")]
                lines.append([head, nodes, pair[0]["backend"], *figures])
    return lines


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
