"""Tables of methods and of what is found about labels."""

from benchmarks.lib.views.rows import TASKS, by_task, columns_of, dicts, short, value

ISSUES = {
    "look-alikes, 20%": "20% are those of a look-alike",
    "random, 20%": "20% are anything",
    "pairs and random": "three pairs swapped, and 8% anything",
}


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


def narrow(of):
    """Returns the clean accuracy of Dense, and what the full and the narrow head add to it, a row for each task."""
    rows = {row["candidate"]: row for row in dicts(of("harm", "tasks without a say: clean accuracy, beside Dense"))}
    lines = [["label errors", *NARROW_HEADS.values()]]
    for task in (name for name in rows["Dense"] if name != "candidate"):
        lines.append([TASKS[task], *(rows[head][task] for head in NARROW_HEADS)])
    return lines


NARROW_HEADS = {"Dense": "Dense: accuracy", "full": "full head", "narrow, 16": "narrow head"}


def serving(of):
    """Returns what changes on test labels if the head is served without its noise, a row for each task."""
    rows = dicts(of("serving", "serving"))
    tasks = [row["task"] for row in rows if row["task"]]
    changes = [row for row in rows if row["served"] == "change without the noise"]
    lines = [["label errors", *(f"change of {name}" for name in SERVED)]]
    return lines + [[TASKS[task], *(row[name] for name in SERVED)] for task, row in zip(tasks, changes, strict=True)]


SERVED = ("clean accuracy", "clean NLL", "clean ECE", "noisy NLL")


def fine_tuned(of):
    """Returns clean test figures of each last layer, with all layers of the network trained."""
    heads = {"Dense": "`Dense`", "Dense, logits / 5": "`Dense`, logits / 5", "full head": "the head"}
    lines = [["labels", "last layer", "accuracy", "NLL", "accuracy - Dense's", "NLL - Dense's"]]
    for row in dicts(_fine_tuned(of)):
        figures = (row["accuracy"], row["nll"], row["accuracy - Dense's"], row["nll - Dense's"])
        lines.append([row["set"], heads[row["head"]], *figures])
    return lines


def swapped_classes(of):
    """Errors by method, and how far the learned T is from the true one."""
    chosen = {
        ("random", "50%"): "50%, by a random T",
        ("random", "65%"): "65%, by a random T",
        ("pair", "45%"): "45%, to the next class",
        ("symmetric", "50%"): "50%, symmetric",
    }
    methods = {
        "none": "no T",
        "none, stopped early": "early stopping",
        "learned T": "learned T",
        "true T": "true T",
    }
    lines = [["label errors", *methods.values(), "total variation"]]
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


def _by_head(of, result, name, count):
    """Returns the points of the full head over Dense on a set, tuned by noisy accuracy."""
    rows = dicts(of(result, f"{name}, {count} labels, by noisy accuracy"))
    points = _in_points(next(row["accuracy - Dense's"] for row in rows if row["head"] == "full"))
    return f"{points} ({name.removesuffix(' worst')}, {count:,})"


ENOUGH = (  # results, sets and numbers of labels
    *(("real_heads_sizes", "CIFAR-10N worst", count) for count in (5000, 10000)),
    ("real_heads", "CIFAR-10N worst", 50000),
    ("real_heads", "CIFAR-100N", 45000),
    ("real_heads", "Fashion-MNIST-H", 18000),
)
FEWER = (("real_heads_sizes", "CIFAR-10N worst", 2000), ("real_heads_sizes", "CIFAR-100N", 5000))


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
