"""The paper's tables as lists of runs: a row's name, a configuration, and what is changed in it."""

from typing import NamedTuple

from benchmarks.imagenet.config import CONFIGS, LONG, changed


class Run(NamedTuple):
    """A run of a sweep; its configuration is `changed(CONFIGS[config], overrides)`."""

    row: str
    config: str
    overrides: dict

    def made(self):
        """The configuration."""
        return changed(CONFIGS[self.config], self.overrides)


SHORT = {"epochs": 90, "drops": (30, 60, 80)}
DENSE, DIAGONAL, FULL, PE = ({"head": head} for head in ("dense", "diagonal", "full", "parameter-efficient"))
SIGMOID = {"link": "sigmoid"}
EQUAL = {"hidden": 11_500}  # Appendix E: the parameters of the full head, as one more layer


def _ilsvrc12(**rows):
    return [Run(row.replace("_", " "), "ilsvrc12", overrides) for row, overrides in rows.items()]


SWEEPS = {
    "table1": [
        Run(f"{name}, {length['epochs']} epochs", "ilsvrc12", {**head, **length})
        for name, head in (("Dense", DENSE), ("diagonal", DIAGONAL), ("full", FULL))
        for length in (SHORT, LONG)
    ],
    "table3": [
        Run(f"{row}, {config}", config, overrides)
        for config in ("imagenet21k", "jft")
        for row, overrides in {
            "Dense": DENSE,
            "diagonal, temperature 1": {**DIAGONAL, "temperature": 1.0},
            "diagonal, temperature 0.15": {**DIAGONAL, "temperature": 0.15},
            "parameter-efficient, temperature 0.15": {**PE, "temperature": 0.15},
        }.items()
    ],
    "table8": _ilsvrc12(Dense=DENSE, diagonal=DIAGONAL, diagonal_by_Taylor={**DIAGONAL, "sampling": "taylor"}),
    "table9": _ilsvrc12(**{f"full,_{s}_samples": {**FULL, "samples": s} for s in (1, 10, 100, 1000, 10_000)}),
    "table10": _ilsvrc12(Dense=DENSE, Dense_with_equal_parameters={**DENSE, **EQUAL}, full=FULL),
    "table11": _ilsvrc12(
        Dense=DENSE, Dense_with_sigmoids={**DENSE, **SIGMOID}, full=FULL, full_with_sigmoids={**FULL, **SIGMOID}
    ),
}


def listed(name):
    """The lines of a sweep, one for each run, to be read."""
    return [f"{name} {i}: {run.row}: {run.config}, {_words(run.overrides)}" for i, run in enumerate(SWEEPS[name])]


def _words(overrides):
    return " ".join(f"{name}={list(v) if isinstance(v, tuple) else v}" for name, v in overrides.items())
