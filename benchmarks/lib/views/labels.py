"""Tables of methods and of what is found about labels."""

from benchmarks.lib.views.rows import TASKS, bold, by_task, dicts, value


def advice(of):
    """Returns what to use for which labels, and the clean accuracy that the head gains or loses in points."""
    gains, losses = (", ".join(_by_head(of, *each) for each in parts) for parts in (ENOUGH, FEWER))
    words = by_task(of("recipe", "beside Dense, all chosen by noisy NLL"))["words, 45% of every second", "full"]
    rows = {(row["set"].split()[0], row["head"]): row["accuracy - Dense's"] for row in dicts(_fine_tuned(of))}
    tuned = [
        f"head {_in_points(rows[name, 'full head'])}, logits / 5 {_in_points(rows[name, 'Dense, logits / 5'])} ({name})"
        for name in ("CIFAR-10N", "TREC")
    ]
    figures = (
        f"head {gains}",
        f"head {losses}",
        "; ".join(tuned),
        f"head {_in_points(words['clean accuracy'])} (words of 12 languages)",
        "no change",
        "",
    )
    return [
        ["your labels", "use", "clean accuracy, in points over `Dense`"],
        *([*row, points] for row, points in zip(HEAD_ADVICE, figures, strict=True)),
    ]


def _fine_tuned(of):
    return of("real_finetune", "fine-tuned")


HEAD_ADVICE = (
    ("about 40% confused with look-alikes, 450 a class or more, frozen features", "the head"),
    ("the same with fewer labels", "`Dense`"),
    (
        "confused with look-alikes, all layers trained on about 4,000",
        "`Dense` with [logits divided by 5](pretrained.md#before-you-start)",
    ),
    (
        "one class often labelled as another, one way",
        "[`labels.choose`](choose.md) or [a transition matrix](#errors-that-go-one-way)",
    ),
    ("flipped at random (symmetric), or nearly all correct", "`Dense`, stopped early"),
    ("you do not know", "try both, and [compare them by noisy labels](temperature.md)"),
)


def when_it_helps(of):
    """Returns the figures of Dense, and the difference that the full head makes, a row for each task."""
    table = by_task(of("recipe", "beside Dense, all chosen by noisy NLL"))
    columns = ("clean accuracy", "clean NLL", "clean ECE")
    lines = [["label errors", "Dense: accuracy", "NLL", "ECE", "head - Dense: accuracy", "NLL", "ECE"]]
    for task in TASKS:
        dense, full = table[task, "Dense"], table[task, "full"]
        lines.append([TASKS[task], *(value(dense[name]) for name in columns), *(full[name] for name in columns)])
    return lines


def fine_tuned(of):
    """Returns clean test figures of each last layer, with all layers of the network trained."""
    lines = [["labels", "last layer", *FINE_TUNED_COLUMNS.values()]]
    for row in dicts(_fine_tuned(of)):
        figures = (row[name] for name in FINE_TUNED_COLUMNS)
        lines.append([row["set"], FINE_TUNED.get(row["head"], row["head"]), *figures])
    return lines


FINE_TUNED_COLUMNS = {
    "accuracy": "accuracy",
    "accuracy - Dense's": "difference from `Dense`",
    "nll": "NLL",
    "nll - Dense's": "difference from `Dense`",
    "ece": "ECE",
    "people": "people",
    "processor seconds": "processor seconds",
}
FINE_TUNED = {"Dense": "`Dense`", "Dense, logits / 5": "`Dense`, logits / 5"}


def covariances(of):
    """Returns figures of Dense, and the difference that each covariance makes, on the frozen features of a set."""
    rows = {row["head"]: row for row in dicts(of("real_heads", "CIFAR-10N worst, 18000 labels, by noisy accuracy"))}
    lines = [["head", "accuracy", "points over `Dense`", "NLL", "ECE", "people", "seconds"]]
    for name, words in COVARIANCES.items():
        row = rows[name]
        points = bold(_in_points(row["accuracy - Dense's"])) if row["accuracy - Dense's"] else ""
        lines.append([words, row["accuracy"], points, *(row[key] for key in ("nll", "ece", "people", "seconds"))])
    return lines


COVARIANCES = {
    "Dense, temperature 1": "`Dense`, temperature 1",
    "Dense": "`Dense`, tuned",
    "full": "full",
    "narrow": "narrow",
    "parameter-efficient": "parameter-efficient",
    "diagonal": "diagonal",
}


def _by_head(of, name, count):
    """Returns the points of the full head over Dense on a set, tuned by noisy accuracy."""
    rows = dicts(of("real_heads", f"{name}, {count} labels, by noisy accuracy"))
    points = _in_points(next(row["accuracy - Dense's"] for row in rows if row["head"] == "full"))
    return f"{points} ({name.removesuffix(' worst')}, {count:,})"


ENOUGH = (  # sets and numbers of labels
    ("CIFAR-10N worst", 5000),
    ("CIFAR-10N worst", 10000),
    ("CIFAR-10N worst", 50000),
    ("CIFAR-100N", 45000),
    ("Fashion-MNIST-H", 18000),
)
FEWER = (("CIFAR-10N worst", 2000), ("CIFAR-100N", 5000))


def _in_points(cell):
    """Returns a difference of accuracies and its standard error, in points."""
    mean, error = cell.replace("*", "").split(" +- ")
    return f"{100 * float(mean):+.1f} +- {100 * float(error):.1f}"


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
