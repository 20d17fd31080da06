"""Environments of the nox sessions, and the choice of a backend."""

import argparse
import pathlib
import shutil

import nox

ROOT = pathlib.Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
BACKENDS = ["jax", "tensorflow", "torch"]
EXTRAS = {"jax": "jax", "tensorflow": "tensorflow-cpu", "torch": "torch"}  # the extra that installs a backend here
TWO_WORKERS = ("-n", "2", "--dist", "worksteal")


def install(session, *requirements, groups=()):
    """Installs the package with extras (such as ".[jax]") and dependency groups at the pinned versions."""
    # Without compiling the backends' ten thousand files of Python, most of which are never imported.
    session.install(
        "--no-compile", "-c", "constraints.txt", *requirements, *nox.project.dependency_groups(PROJECT, *groups)
    )


def backend_environment(backend):
    return {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2", "MPLBACKEND": "agg"}


def compilation_cache(session, name="jax"):
    """Where JAX keeps what it compiles: most programs of a test are those of another test, or of another worker."""
    folder = session.cache_dir / name
    shutil.rmtree(folder, ignore_errors=True)  # every run starts without, so that none depends on an earlier one
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder.resolve()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


# The tests make thousands of small programs, which run once: XLA compiles them in half of the time if it optimises
# less. `parity`, the tests of memory, and the sessions of benchmarks and of other packages compile as users do.
COMPILE_FAST = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"}


def split_backend(session, default="jax"):
    """The backend named behind `--` as `--backend NAME`, or the default, and the other arguments."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--backend", choices=BACKENDS, default=default)
    known, others = parser.parse_known_args(session.posargs)
    return known.backend, others


def backends_of(session):
    """The backend that is named behind `--`, or all."""
    return [split_backend(session)[0]] if any(word.startswith("--backend") for word in session.posargs) else BACKENDS


def test_groups(backend):
    """The dependency groups of the tests on a backend: some of other packages run where they cost least."""
    return ["test", "export", "torchmetrics"] if backend == "torch" else ["test"]


def long_run(session, module):
    """Runs a module of the tests on each backend, or on the one that is named behind `--`, with the other arguments."""
    arguments = [word for word in split_backend(session)[1] if word != "--soak"]
    install(session, "-e", ".[jax,tensorflow-cpu,torch]", groups=["test"])
    for backend in backends_of(session):
        session.run("python", "-m", module, *arguments, env=backend_environment(backend))
