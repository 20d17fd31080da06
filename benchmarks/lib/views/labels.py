"""Tables of methods and of what is found about labels."""

from benchmarks.lib.views.rows import dicts

# Sets and numbers of labels, for whole networks.
TUNED = (("CIFAR-10N worst", "4000"), ("CIFAR-10N worst", "10000"), ("TREC", "4000"))


def _fine_tuned(of, name, count):
    rows = [row for row in dicts(of("real_finetune", "fine-tuned")) if (row["set"], row["labels"]) == (name, count)]
    if not rows:
        raise KeyError(f"real_finetune: no rows of {name}, {count} labels")
    return rows


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
