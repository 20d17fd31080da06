"""Tables of methods and of what is found about labels."""

from benchmarks.lib.views.rows import TASKS, bold, by_task, dicts, in_points, value


def advice(of):
    """Returns what to use for which labels, and the clean accuracy that it gains or loses in points."""
    tasks = by_task(of("recipe", "beside Dense, all chosen by noisy NLL"))
    words, symmetric, none = (
        _points(tasks[task, "full"]["clean accuracy"])
        for task in ("words, 45% of every second", "digits, 40% symmetric", "digits, 0%")
    )
    pair, flipped, correct = (_chosen(of, "digits", noise) for noise in ("pair", "symmetric", "none"))
    one_way = _chosen(of, "words, 45% of every second", "its own")
    figures = (
        *("; ".join(_gains(of, *each) for each in sets) for sets in (FEW, MANY, CORRECT)),
        "over logits / 5: " + "; ".join(_fine_tuned_gains(of, *each) for each in TUNED),
        "; ".join(_scratch_gains(of, name) for name in ("CIFAR-10N worst", "CIFAR-100N")),
        (
            f"over early stopping: `choose` {pair} (digits, each class as the next), {one_way} (12 languages); "
            f"over tuned `Dense`: head {words} (words)"
        ),
        (
            f"over early stopping: `choose` {flipped} (digits, symmetric), {correct} (digits, no errors); "
            f"over tuned `Dense`: head {symmetric} (digits, symmetric), {none} (digits, no errors)"
        ),
        "",
    )
    return [
        ["your labels", "use", "clean accuracy, in points over tuned `Dense` unless named"],
        *([*row, points] for row, points in zip(HEAD_ADVICE, figures, strict=True)),
    ]


HEAD_ADVICE = (
    ("frozen features, 10,000 labels or fewer", "[`labels.clean`](label-errors.md)"),
    ("frozen features, 18,000 labels or more, 34% or more wrong", "the head, or `labels.clean`: compare them"),
    ("frozen features, 18,000 labels or more, 17% or fewer wrong", "`Dense`, tuned, or the head"),
    (
        "a pretrained network, all layers fine-tuned",
        "`Dense` or the head, from [zeros or Keras' start](temperature.md#start-from-zeros): compare them",
    ),
    ("a network from scratch, 45,000 labels, 40% wrong", "[`Dense`, tuned](#networks-from-scratch)"),
    (
        "one class often labelled as another, one way",
        "[`labels.choose`](choose.md) or [a transition matrix](#errors-that-go-one-way)",
    ),
    ("flipped at random (symmetric), or nearly all correct", "[`labels.choose`](choose.md), or `Dense`, tuned"),
    ("you do not know", "try both, and [compare them by noisy labels](temperature.md)"),
)
FEW = tuple(  # sets and numbers of labels
    (name, 5000)
    for name in ("CIFAR-10N worst", "CIFAR-10N random1", "CIFAR-10N aggregate", "CIFAR-100N", "Fashion-MNIST-H")
)
# Sets and numbers of labels, for whole networks.
TUNED = (("CIFAR-10N worst", "4000"), ("CIFAR-10N worst", "10000"), ("TREC", "4000"))
CORRECT = (("CIFAR-10N random1", 18000), ("CIFAR-10N aggregate", 18000))
MANY = (("CIFAR-10N worst", 18000), ("CIFAR-10N worst", 50000), ("CIFAR-100N", 45000), ("Fashion-MNIST-H", 18000))


def _gains(of, name, count):
    """Returns the points of `clean` and of the head over Dense, tuned by noisy accuracy."""
    rows = {row["head"]: row for row in dicts(of("real_heads", f"{name}, {count} labels, by noisy accuracy"))}
    clean, head = (_points(rows[row]["accuracy - Dense's"]) for row in ("clean", "full"))
    return f"`labels.clean` {clean}, head {head} ({name}, {count:,})"


def _chosen(of, task, noise):
    """Returns the points of `choose` over `Dense` with early stopping."""
    rows = dicts(of("choice", f"{task}: clean accuracy of early stopping, 3 starts, and points over it"))
    return bold(next(row["choose"] for row in rows if row["noise"] == noise))


def _points(cell):
    return bold(in_points(cell))


def _fine_tuned_gains(of, name, count):
    """Returns the points of each head over Dense with logits / 5, all layers trained."""
    rows = {row["head"]: row for row in _fine_tuned(of, name, count)}
    words = {"full head": "head", "diagonal head": "diagonal head", "Dense": "`Dense` from Keras' start"}
    gains = (f"{words[head]} {_points(rows[head]['accuracy - logits / 5'])}" for head in words if head in rows)
    return f"{', '.join(gains)} ({name}, {int(count):,})"


def _scratch_gains(of, name):
    """Returns the points of the full head over Dense, both tuned by noisy accuracy, for a network from scratch."""
    rows = {
        row["head"]: row for row in dicts(of("real_scratch", "temperature by noisy accuracy")) if row["set"] == name
    }
    points = _points(rows["full head"]["accuracy - Dense's"])
    return f"head {points} ({name})"


def _fine_tuned(of, name, count):
    rows = [row for row in dicts(of("real_finetune", "fine-tuned")) if (row["set"], row["labels"]) == (name, count)]
    if not rows:
        raise KeyError(f"real_finetune: no rows of {name}, {count} labels")
    return rows


def when_it_helps(of):
    """Returns the figures of Dense, and the difference that the full head makes, a row for each task."""
    table = by_task(of("recipe", "beside Dense, all chosen by noisy NLL"))
    columns = ("clean accuracy", "clean NLL", "clean ECE")
    lines = [["label errors", "Dense: accuracy", "NLL", "ECE", "head - Dense: accuracy", "NLL", "ECE", "seeds"]]
    for task in TASKS:
        dense, full = table[task, "Dense"], table[task, "full"]
        lines.append(
            [TASKS[task], *(value(dense[name]) for name in columns), *(full[name] for name in (*columns, "seeds"))]
        )
    return lines


def fine_tuned(of):
    """Returns clean test figures of each last layer, with all layers of the network trained."""
    lines = [["dataset", "last layer", *FINE_TUNED_COLUMNS.values()]]
    for task in TUNED:
        for row in _fine_tuned(of, *task):
            figures = (f"{int(row[name]):,}" if name == "labels" else row[name] for name in FINE_TUNED_COLUMNS)
            lines.append([row["set"], FINE_TUNED.get(row["head"], row["head"]), *figures])
    return lines


FINE_TUNED_COLUMNS = {
    "labels": "labels",
    "accuracy": "accuracy",
    "accuracy - logits / 5": "difference from logits / 5",
    "nll": "NLL",
    "people": "people",
    "seeds": "seeds",
}
FINE_TUNED = {"Dense": "`Dense`", "Dense, logits / 5": "`Dense`, logits / 5"}


def from_scratch(of):
    """Returns clean test figures of each last layer and temperature, in a network trained from scratch."""
    lines = [["dataset", "last layer", "accuracy", "points over `Dense`, temperature 1", "NLL", "ECE", "seeds"]]
    for row in dicts(of("real_scratch", "each temperature")):
        points = _points(row["accuracy - Dense's"]) if row["accuracy - Dense's"] else ""
        others = (row[key] for key in ("nll", "ece", "seeds"))
        lines.append([row["set"], FROM_SCRATCH[row["head"]], row["accuracy"], points, *others])
    return lines


FROM_SCRATCH = {
    "Dense": "`Dense`, temperature 1",
    "Dense, logits / 5": "`Dense`, temperature 5",
    "full head": "head, temperature 5",
    "full head, temperature 1": "head, temperature 1",
}


def covariances(of):
    """Returns figures of Dense, and the difference that each covariance makes, on the frozen features of a set."""
    rows = {row["head"]: row for row in dicts(of("real_heads", "CIFAR-10N worst, 18000 labels, by noisy accuracy"))}
    lines = [["head", "accuracy", "points over `Dense`", "NLL", "ECE", "people", "seconds", "seeds"]]
    for name, words in COVARIANCES.items():
        row = rows[name]
        points = _points(row["accuracy - Dense's"]) if row["accuracy - Dense's"] else ""
        others = (row[key] for key in ("nll", "ece", "people", "seconds", "seeds"))
        lines.append([words, row["accuracy"], points, *others])
    return lines


COVARIANCES = {
    "Dense, temperature 1": "`Dense`, temperature 1",
    "Dense": "`Dense`, tuned",
    "full": "full",
    "narrow": "narrow",
    "parameter-efficient": "parameter-efficient",
    "diagonal": "diagonal",
}


def segmentation(of):
    """Returns how far samples of each model are from the maps of annotators, for segments and for discs."""
    titles = {"segments": "segments that are wholly on or off", "discs": "discs with two borders"}
    tables = [{row["model"]: row for row in dicts(of("segmentation", title))} for title in titles.values()]
    lines = [["model", *(f"{task}: {name}" for task in titles for name in ("GED", "matched IoU"))]]
    for model, words in SEGMENTATION_MODELS.items():
        lines.append([words, *(rows[model][name] for rows in tables for name in ("GED, 100 samples", "matched IoU"))])
    return lines


SEGMENTATION_MODELS = {
    "the planted distribution, sampled": "planted distribution",
    "each pixel by itself, planted": "planted, independent pixels",
    "Dense of each pixel": "`Dense` of each pixel",
    "HeteroscedasticDense of each pixel": "`HeteroscedasticDense` of each pixel",
    "joint": "joint head",
}


def regression(of):
    """Returns figures of regressions with a planted covariance and on diabetes, a row for each way of training."""
    planted, diabetes = (
        {row["model"]: row for row in dicts(of("regression", title))} for title in ("planted covariance", "diabetes")
    )
    lines = [["training", "planted: NLL", "RMSE", "rank correlation", "diabetes: NLL", "RMSE", "inside 90%"]]
    for model in REGRESSION_MODELS:
        figures = [planted[model][name] for name in ("NLL", "RMSE", "rank correlation")]
        figures += [diabetes.get(model, {}).get(name, "") for name in ("NLL", "RMSE", "inside 90%")]
        lines.append([REGRESSION_MODELS[model], *figures])
    return lines


REGRESSION_MODELS = {
    "constant variance": "constant variance",
    "constant covariance": "constant covariance",
    "NLL": "NLL",
    "beta-NLL": "beta-NLL",
    "beta-NLL, stopped by NLL": "beta-NLL, stopped by NLL",
    "faithful": "faithful",
    "natural": "natural parameters",
    "from a trained mean": "NLL, from a trained mean",
    "the same, mean fixed": "NLL, the trained mean fixed",
}
