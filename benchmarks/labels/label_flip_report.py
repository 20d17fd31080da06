"""The report of label_flip.py: tables in Markdown, all rows as JSON, and the plots."""

import json

import numpy as np

from benchmarks.lib.lines import distinct, select, with_error

COLOURS = {
    "none": "#9a9a9a",
    "none, stopped early": "#c9a66b",
    "true T": "#2f7d4f",
    "learned T": "#1f5f99",
    "forward, estimated T": "#b5485d",
    "bootstrapping, hard": "#8a6bb0",
    "HeteroscedasticDense": "#e08e2b",
    "true share": "#2f7d4f",
    "learned share": "#1f5f99",
}


def mean(rows, name):
    """Mean over the seeds of a column, nan if no row has it."""
    values = [row[name] for row in rows if name in row]
    return float(np.mean(values)) if values else float("nan")


def cell(rows, name):
    """Mean +- standard error over the seeds as text."""
    values = [row[name] for row in rows if name in row]
    return with_error(values) if values else ""


def table(rows, columns, name):
    """Methods down, the values of a column across."""
    heads = distinct(rows, columns)
    lines = [["method", *(f"{head:.0%}" if isinstance(head, float) else str(head) for head in heads)]]
    for method in distinct(rows, "method"):
        lines.append([method, *(cell(select(rows, method=method, **{columns: head}), name) for head in heads)])
    return [line for line in lines if any(line[1:])]


def claims(rows):
    """The sentences that the issue of a learned T is judged by."""
    lines = []
    for noise, level in (("random", 0.5), ("pair", 0.45), ("random", 0.65)):
        found = {
            method: mean(select(rows, noise=noise, level=level, method=method), "error")
            for method in ("none", "learned T", "true T")
        }
        chosen = select(rows, noise=noise, level=level, method="learned T")
        if not chosen:
            continue
        strengths = ", ".join(f"{row['strength']:g}" for row in chosen)
        learned, true, none = (found[method] for method in ("learned T", "true T", "none"))
        errors = f"learned {learned:.3f}, true {true:.3f}, none {none:.3f}"
        points = f"{100 * (learned - true):+.1f} points over the true T, {100 * (none - learned):.1f} under none"
        distance = f"total variation {mean(chosen, 'distance'):.3f}; strengths {strengths}"
        lines.append(f"- {noise} {level:.0%}: {errors}: {points}; {distance}.")
    return "\n".join(lines)


def describe_penalties(rows):
    """A line for each regulariser: error, distance and chosen strengths at each noise."""
    conditions = [
        (noise, level) for noise in distinct(rows, "noise") for level in distinct(select(rows, noise=noise), "level")
    ]
    names = [f"{noise} {level:.0%}" for noise, level in conditions]
    lines = [["regulariser", *(f"{name}: {what}" for name in names for what in ("error", "TV", "strengths"))]]
    for method in distinct(rows, "method"):
        line = [method]
        for noise, level in conditions:
            found = select(rows, noise=noise, level=level, method=method)
            strengths = sorted(row["strength"] for row in found)
            line += [cell(found, "error"), f"{mean(found, 'distance'):.3f}", f"{strengths[0]:g}-{strengths[-1]:g}"]
        lines.append(line)
    return lines


def describe_decays(rows):
    """A line for each L2 of the kernels: error, distance and what is learned by heart, for both choices of epoch."""
    names = [f"{noise}, {epoch}" for noise in distinct(rows, "noise") for epoch in distinct(rows, "epoch")]
    lines = [["L2 of the kernels", *(f"{name}: {what}" for name in names for what in ("error", "TV", "by heart"))]]
    for method in distinct(rows, "method"):
        line = [method]
        for noise in distinct(rows, "noise"):
            for epoch in distinct(rows, "epoch"):
                found = select(rows, noise=noise, method=method, epoch=epoch)
                line += [cell(found, "error"), f"{mean(found, 'distance'):.2f}", f"{mean(found, 'by heart'):.2f}"]
        lines.append(line)
    return lines


def describe(rows):
    """All tables, by their titles."""
    tables = {}
    names = ("noise", "sizes", "regularizers", "decays", "outliers")
    flips, sizes, penalties, decays, outliers = (select(rows, part=part) for part in names)
    for noise in distinct(flips, "noise"):
        of_noise = select(flips, noise=noise)
        tables[f"error on clean test data, {noise} flips, by their share"] = table(of_noise, "level", "error")
        tables[f"total variation to the true T, {noise} flips"] = table(of_noise, "level", "distance")
    if flips:
        tables["what a learned T has to show"] = claims(flips)
    if sizes:
        tables["error on clean test data, random flips, 50%, by the size of the training set"] = table(
            sizes, "size", "error"
        )
    if penalties:
        tables["regularisers of a learned T"] = describe_penalties(penalties)
    if decays:  # noisy NLL of validation less that of training labels is what is learned by heart
        tables["L2 on the base model, and the epoch"] = describe_decays(decays)
    if outliers:
        tables["outliers, by their share of the training set: error among the classes"] = table(
            outliers, "level", "error"
        )
        tables["area under the ROC curve, outliers against classes"] = table(outliers, "level", "auc")
        tables["share of labelled outliers, learned or given"] = table(outliers, "level", "share")
    return tables


def save(rows, folder):
    """All rows as JSON, and the plots of the parts that were run."""
    (folder / "label_flip.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flips, sizes, outliers = (select(rows, part=part) for part in ("noise", "sizes", "outliers"))
    if sizes:
        plot_lines(sizes, "size", "training examples (random flips, 50%)", folder / "error_by_size.png")
    if flips:
        random = select(flips, noise="random") or flips
        plot_lines(
            random, "level", f"share of flipped labels ({random[0]['noise']} flips)", folder / "error_by_noise.png"
        )
        plot_transitions(random, folder / "transitions.png")
    if outliers:
        plot_lines(outliers, "level", "share of outliers in the training set", folder / "error_by_outliers.png")


def plot_lines(rows, column, label, path):
    """Error against a column, a line for each method with bars of a standard error."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for method in distinct(rows, "method"):
        xs = distinct(select(rows, method=method), column)
        errors = [[100 * row["error"] for row in select(rows, method=method, **{column: x})] for x in xs]
        bars = [np.std(e, ddof=1) / np.sqrt(len(e)) if len(e) > 1 else 0.0 for e in errors]
        axes.errorbar(
            xs, [np.mean(e) for e in errors], yerr=bars, label=method, color=COLOURS[method], marker="o", capsize=3
        )
    if column == "size":
        axes.set_xscale("log", base=2)
        axes.set_xticks(distinct(rows, "size"), [str(size) for size in distinct(rows, "size")])
    else:
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    axes.set(xlabel=label, ylabel="error on clean test data (%)", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def plot_transitions(rows, path):
    """The true T beside the learned one: the first seed of the level nearest to one half."""
    from matplotlib.figure import Figure

    level = min(distinct(rows, "level"), key=lambda value: abs(value - 0.5))
    figure = Figure(figsize=(8.4, 4), layout="constrained")
    for axes, method in zip(figure.subplots(1, 2), ("true T", "learned T"), strict=True):
        row = select(rows, level=level, method=method)[0]
        image = axes.imshow(row["transition"], vmin=0, vmax=0.6, cmap="viridis")
        ticks = range(len(row["transition"]))
        axes.set(title=method, xlabel="noisy label j", ylabel="true class i", xticks=ticks, yticks=ticks)
    figure.colorbar(image, ax=figure.axes, label="T[i, j] = p(noisy j | true i)")
    figure.suptitle(f"{row['noise']} flips, {level:.0%}, seed {row['seed']}")
    figure.savefig(path, dpi=150)
