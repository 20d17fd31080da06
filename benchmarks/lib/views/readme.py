"""Tables of README.md: what the head costs on every backend, and what it gains."""

import statistics

from benchmarks.lib.views.rows import dicts, value

BACKENDS = {"JAX": "jax", "TensorFlow": "tensorflow", "PyTorch": "torch"}
LOOK_ALIKE = {"CIFAR-10N": ("CIFAR-10N worst", 50000), "CIFAR-100N": ("CIFAR-100N", 45000)}
FINE_TUNED = {"CIFAR-10N": "CIFAR-10N worst", "TREC": "TREC"}


def readme_costs(of):
    """A column for each backend: agreement, and the cost of the full head beside Dense on a processor and a card."""
    gradients = next(row for row in dicts(of("parity_models", "kinds")) if row["number"] == "gradients")
    return [
        ["1,000 classes, batch of 128, 256 samples", *BACKENDS],
        ["largest difference of a gradient from JAX", "", *(gradients[f"jax - {name}"] for name in _others())],
        ["training step on two processor cores", *(f"{_milliseconds(of, name)} ms" for name in BACKENDS.values())],
        ["share of a ResNet-50 prediction, same cores", *(_share(of, name) for name in BACKENDS.values())],
        ["training step on an H100, beside `Dense`", *(_times_dense(of, name) for name in BACKENDS.values())],
    ]


def _others():
    return list(BACKENDS.values())[1:]


def _full(of, name, title, **sizes):
    """The row of the full head with some sizes."""
    wanted = {"head": "full", **sizes}
    return next(row for row in dicts(of(name, title)) if wanted.items() <= row.items())


def _milliseconds(of, backend):
    row = _full(of, "speed", "train, D=2048", backend=backend, B="128", K="1000", R="15", S="256")
    return row["ms (quartiles)"].split()[0]


def _share(of, backend):
    return _full(of, f"backbone_{backend}", "share of the head in a prediction")["share"]


def _times_dense(of, backend):
    if backend == "tensorflow":
        return "not measured"
    return (
        f"{_full(of, f'gpu_speed_{backend}', 'speed', mode='train', K='1000', B='128', S='256')['times Dense']} times"
    )


def readme_gains(of):
    """A row for each kind of labels: what to use, and the points of clean accuracy that it gains."""
    frozen = ", ".join(f"{_by_head(of, *task)} ({name})" for name, task in LOOK_ALIKE.items())
    tuned = ", ".join(f"{_behind_scaled(of, task)} ({name})" for name, task in FINE_TUNED.items())
    swapped, few = (_by_choose(of, noise) for noise in ("pair", "none"))
    return [
        ["your labels", "use", "points over"],
        ["confused with look-alikes, 45,000 and more", "the head", f"{frozen} over `Dense`, features frozen"],
        ["the same, 4,000, network fine-tuned", "`Dense`, logits / 5", f"the head: {tuned} beside it"],
        ["whole classes swapped", "`labels.choose`", f"{swapped} over early stopping (synthetic); the head loses"],
        ["noisy, you do not know how", "`labels.clean` on features", f"{_cleaned(of)} over `Dense`, ten real sets"],
        ["nearly all correct", "label smoothing", f"{few} over early stopping (synthetic)"],
    ]


def _by_head(of, name, count):
    """The points of the full head over Dense, both at the epoch with the best noisy accuracy."""
    rows = dicts(of("real_heads", f"{name}, {count} labels, by noisy accuracy"))
    mean, error = next(row["accuracy - Dense's"] for row in rows if row["head"] == "full").split(" +- ")
    return f"{100 * float(mean):+.1f} ± {100 * float(error):.1f}"


def _behind_scaled(of, task):
    """The points of the full head over a Dense layer whose logits are divided by 5."""
    head, dense = (
        float(value(next(row["accuracy"] for row in dicts(of("real_finetune", "fine-tuned")) if _is(row, task, name))))
        for name in ("full head", "Dense, logits / 5")
    )
    return f"{100 * (head - dense):+.1f}"


def _is(row, task, head):
    return (row["set"], row["head"]) == (task, head)


def _by_choose(of, noise):
    """The points of `choose` over early stopping on digits with a kind of noise."""
    rows = dicts(of("choice", "digits: clean accuracy of early stopping, 3 starts, and points over it"))
    points = next(row["choose, 30 trainings"] for row in rows if row["noise"] == noise)
    return points.replace("*", "").replace("+-", "±")


def _cleaned(of):
    """The mean points of `clean` over a Dense layer with early stopping on sets labelled by people and rules."""
    titles = (f"points over Dense, {half}" for half in ("sets that decided", "sets that had no say"))
    points = [float(value(row["clean_labels"])) for title in titles for row in dicts(of("real_choose", title))]
    error = statistics.stdev(points) / len(points) ** 0.5
    return f"{statistics.mean(points):+.1f} ± {error:.1f} ({min(points):+.1f} to {max(points):+.1f})"
