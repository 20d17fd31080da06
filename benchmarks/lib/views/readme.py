"""Table of README.md: what the head costs on every backend, beside Dense."""

from benchmarks.lib.views.rows import dicts

BACKENDS = ("JAX", "TensorFlow", "PyTorch")
NAMES = ("jax", "tensorflow", "torch")


def readme_costs(of):
    """A column for each backend: agreement, and the times of Dense and of the full head on a processor."""
    gradients = next(row for row in dicts(of("parity_kinds", "kinds")) if row["number"] == "gradients")
    figures = {
        "gradients of all heads, largest difference": [
            "reference",
            *(gradients[f"jax - {n}"] for n in NAMES[1:]),
        ]
    }
    for number, layer in enumerate(("`Dense`", "head")):
        figures[f"training step of {layer} alone, batch of 128"] = [_step(of, name)[number] for name in NAMES]
    for layer, words in (("Dense", "`Dense`"), ("full", "head")):
        figures[f"prediction of ResNet-50 with {words}, batch of 8"] = [_prediction(of, name, layer) for name in NAMES]
    return [
        ["two CPU cores, 1,000 classes, 256 noise samples in training", *BACKENDS],
        *([k, *row] for k, row in figures.items()),
    ]


def _step(of, backend):
    """Returns the times of Dense and of the full head."""
    wanted = {"head": "full", "backend": backend, "B": "128", "K": "1000", "R": "15", "S": "256"}
    row = next(row for row in dicts(of("speed", "train, D=2048")) if wanted.items() <= row.items())
    head = float(row["ms (quartiles)"].split()[0])
    return f"{head / float(row['times Dense']):.0f} ms", f"{head:.0f} ms"


def _prediction(of, backend, layer):
    rows = dicts(of(f"backbone_{backend}", "share of the head in a prediction"))
    return next(f"{float(row['whole ms']):.0f} ms" for row in rows if row["head"] == layer)
