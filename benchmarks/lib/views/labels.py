"""Tables of methods and of what is found about labels."""

from benchmarks.lib.views.rows import dicts


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
