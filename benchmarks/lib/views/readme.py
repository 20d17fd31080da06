"""Table of README.md: what the head costs on every backend."""

from benchmarks.lib.views.rows import dicts

BACKENDS = ("JAX", "TensorFlow", "PyTorch")
NAMES = ("jax", "tensorflow", "torch")


def readme_costs(of):
    """A column for each backend: agreement, and the cost of the full head on a processor."""
    gradients = next(row for row in dicts(of("parity_models", "kinds")) if row["number"] == "gradients")
    agreement = [gradients[f"jax - {name}"] for name in NAMES[1:]]
    figures = {
        "gradients of all heads: largest difference from JAX": ["", *agreement],
        "training step, two CPU cores, batch of 128": [f"{_milliseconds(of, each)} ms" for each in NAMES],
        "the head's share of a ResNet-50 prediction, batch of 8": [_share(of, each) for each in NAMES],
    }
    return [["full head, 1,000 classes, 256 samples", *BACKENDS], *([name, *row] for name, row in figures.items())]


def _full(of, name, title, **sizes):
    """The row of the full head with some sizes."""
    wanted = {"head": "full", **sizes}
    return next(row for row in dicts(of(name, title)) if wanted.items() <= row.items())


def _milliseconds(of, backend):
    row = _full(of, "speed", "train, D=2048", backend=backend, B="128", K="1000", R="15", S="256")
    return row["ms (quartiles)"].split()[0]


def _share(of, backend):
    return _full(of, f"backbone_{backend}", "share of the head in a prediction")["share"]
