"""The paper's tables as lists of runs: name of the row, configuration, changes to it, and the paper's result.

Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, Tables 1, 3, 8, 9, 10 and 11. Results are top-1
accuracy in per cent, or global average precision (gAP) in Table 3.
"""

from typing import NamedTuple

from benchmarks.imagenet.config import CONFIGS, LONG, changed


class Run(NamedTuple):
    """Run of a sweep, with the configuration `changed(CONFIGS[config], overrides)`."""

    row: str
    config: str
    overrides: dict
    reported: float | None = None

    def made(self):
        """Returns the configuration."""
        return changed(CONFIGS[self.config], self.overrides)


SHORT = {"epochs": 90, "drops": (30, 60, 80)}
DENSE, DIAGONAL, FULL, PE = ({"head": head} for head in ("dense", "diagonal", "full", "parameter-efficient"))
SIGMOID = {"link": "sigmoid"}
EQUAL = {"hidden": 11_500}  # Appendix E: the parameters of the full head, as one more layer


def _ilsvrc12(rows):
    return [Run(row, "ilsvrc12", overrides, reported) for row, (overrides, reported) in rows.items()]


def _table3(config, *reported):
    rows = {
        "Dense": DENSE,
        "diagonal, temperature 1": {**DIAGONAL, "temperature": 1.0},
        "diagonal, temperature 0.15": {**DIAGONAL, "temperature": 0.15},
        "parameter-efficient, temperature 0.15": {**PE, "temperature": 0.15},
    }
    return [
        Run(f"{row}, {config}", config, overrides, figure)
        for (row, overrides), figure in zip(rows.items(), reported, strict=True)
    ]


SWEEPS = {
    "table1": _ilsvrc12(
        {
            "Dense, 90 epochs": (DENSE | SHORT, 76.5),
            "Dense, 270 epochs": (DENSE | LONG, 76.7),
            "diagonal, 90 epochs": (DIAGONAL | SHORT, 78.3),
            "diagonal, 270 epochs": (DIAGONAL | LONG, 78.7),
            "full, 90 epochs": (FULL | SHORT, 78.5),
            "full, 270 epochs": (FULL | LONG, 79.3),
        }
    ),
    "table3": [*_table3("imagenet21k", 45.9, 45.9, 46.8, 47.0), *_table3("jft", 63.1, 63.1, 64.1, 64.7)],
    "table8": _ilsvrc12(
        {
            "Dense": (DENSE, 76.7),
            "diagonal": (DIAGONAL, 78.7),
            "diagonal by Taylor": ({**DIAGONAL, "sampling": "taylor"}, 78.2),
        }
    ),
    "table9": _ilsvrc12(
        {
            f"full, {samples} samples": ({**FULL, "samples": samples}, reported)
            for samples, reported in {1: 78.5, 10: 78.6, 100: 79.1, 1000: 79.2, 10_000: None}.items()
        }
    ),
    "table10": _ilsvrc12(
        {
            "Dense": (DENSE, 76.7),
            "Dense with equal parameters": ({**DENSE, **EQUAL}, 77.1),
            "full": (FULL, 79.3),
        }
    ),
    "table11": _ilsvrc12(
        {
            "Dense": (DENSE, 76.7),
            "Dense with sigmoids": ({**DENSE, **SIGMOID}, 78.2),
            "full": (FULL, 79.3),
            "full with sigmoids": ({**FULL, **SIGMOID}, 79.35),
        }
    ),
}


def listed(name):
    """Returns the lines of a sweep as text, one for each run."""
    return [f"{name} {i}: {run.row}: {run.config}, {_words(run)}" for i, run in enumerate(SWEEPS[name])]


def _words(run):
    words = (f"{name}={list(v) if isinstance(v, tuple) else v}" for name, v in run.overrides.items())
    return " ".join([*words, *([f"(the paper: {run.reported})"] if run.reported else [])])
