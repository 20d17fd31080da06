"""Metrics against brute force in float64 on very many random cases.

    python -m tests.metrics.many_cases [--cases 10000]

Beside the cases of `test_metrics.py`, which are few, for they run with every change: other numbers of examples and of
batches, confident and unsure models, and probabilities with many ties.
"""

import argparse

import numpy as np
from scipy.special import softmax

from tests.metrics import test_metrics as few


def case(seed):
    """Labels and probabilities, float32, of up to 40 examples, and into how many batches to cut them.

    A third of the cases has many ties.
    """
    rng = np.random.default_rng([7, seed])
    count = int(rng.integers(1, few.EXAMPLES + 1))
    p = softmax(rng.choice([0.3, 1.0, 4.0]) * rng.normal(size=(count, few.UNITS)), axis=1)
    if seed % 3 == 0:
        p = (rng.multinomial(8, p) + 1) / 12
        p[np.arange(count), p.argmax(1)] += 0.5
        p /= 1.5
    return rng.integers(few.UNITS, size=count), p.astype("float32"), int(rng.integers(1, min(count, 5) + 1))


def padded(labels, p, batches):
    """Batches of one size, filled up by examples of no weight, so that one program serves all cases."""
    for part_labels, part in zip(np.array_split(labels, batches), np.array_split(p, batches), strict=True):
        fill = few.EXAMPLES - len(part)
        weights = np.concatenate([np.ones(len(part)), np.zeros(fill)]).astype("float32")
        yield (
            np.pad(part_labels, (0, fill)),
            np.concatenate([part, np.full((fill, few.UNITS), 0.25, "float32")]),
            weights,
        )


def largest_difference(name, seeds):
    """Of a metric from its oracle, over cases."""
    metric, worst = few.KINDS[name](), 0.0
    for seed in seeds:
        labels, p, batches = case(seed)
        metric.reset_state()
        for batch in padded(labels, p, batches):
            metric.update_state(*batch)
        worst = max(worst, abs(few.number(metric.result()) - few.ORACLES[name](labels, np.float64(p))))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--metrics", nargs="+", choices=list(few.KINDS), default=["ece", "gap"])
    options = parser.parse_args()
    for name in options.metrics:
        print(
            f"{name}: {options.cases} cases, largest difference {largest_difference(name, range(options.cases)):.2g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
