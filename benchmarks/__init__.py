"""Experiments and measurements of keras_het: the packages that each benchmark needs, and its time.

`python -m nox -s bench -- NAME` runs one in an environment that has them. README.md lists them all.
"""

from typing import NamedTuple


class Benchmark(NamedTuple):
    """Packages that a benchmark needs beside keras_het and a backend, and its time on two cores.

    Attributes:
        extras: extras of the package, divided by commas.
        groups: dependency groups of pyproject.toml.
        time: duration in words.
    """

    extras: str = "demo"
    groups: tuple[str, ...] = ()
    time: str = "not timed"


WEIGHTS = ("hub,demo", ("real",))  # benchmarks with pretrained networks

BENCHMARKS = {
    "cost.backbone": Benchmark(""),
    "cost.devices": Benchmark(""),
    "cost.nodes": Benchmark("", time="ten minutes"),
    "cost.peers": Benchmark("", ("peers",), "on TensorFlow: --backend tensorflow; --quick: some minutes"),
    "parity": Benchmark("jax,tensorflow-cpu,torch,hub", time="three hours; --quick: a few minutes"),
    "demo": Benchmark(time="half a minute"),
    "imagenet": Benchmark(time="weeks of accelerators; --dry-run: a minute"),
    "labels.choice": Benchmark(groups=("recipe",), time="three hours; --seeds 1: half an hour"),
    "labels.cleaning": Benchmark(groups=("recipe",), time="a quarter of an hour"),
    "labels.joint": Benchmark(time="ten minutes"),
    "labels.regression": Benchmark(time="ten minutes"),
    "labels.segmentation": Benchmark(time="ten minutes"),
    "real.annotators": Benchmark("hub,demo", ("real", "crowdkit"), "an hour; --quick: some minutes"),
    "real.choose": Benchmark(*WEIGHTS, "an hour; --quick: a few minutes when the features are there"),
    "real.clean": Benchmark(*WEIGHTS, "two hours; --quick: a few minutes when the features are there"),
    "real.features": Benchmark(*WEIGHTS, "an hour and a half on TensorFlow, several times as long on the others"),
    "real.finetune": Benchmark(*WEIGHTS, "two hours for the words, many for each other task; --quick: a minute"),
    "real.heads": Benchmark(*WEIGHTS, "two hours; --quick: a minute"),
    "real.issues": Benchmark("hub,demo", ("real", "cleanlab"), "an hour; --quick: a minute"),
    "real.joint": Benchmark(time="half an hour; --quick: a minute"),
    "real.judge": Benchmark(*WEIGHTS, "ten minutes; --quick: a minute"),
    "real.votes": Benchmark(*WEIGHTS),
    "real.verified": Benchmark(groups=("cleanlab",), time="seconds"),
}
