"""Sessions of nox: `python -m nox` lints, and tests on three backends; `python -m nox -l` lists the others."""

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
from tests.environments import (
    BACKENDS,
    COMPILE_FAST,
    EXTRAS,
    PROJECT,
    TWO_WORKERS,
    backend_environment,
    backends_of,
    compilation_cache,
    install,
    long_run,
    split_backend,
    test_groups,
)

nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True  # a session that did not run has shown nothing


@nox.session
def lint(session):
    """Style, types, and what the imports may be."""
    install(session, "keras", "numpy", groups=["lint"])
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def tests(session):
    """The tests: each backend in a process, a pretended accelerator, and parity, two processes at a time.

    Arguments behind `--` go to pytest, on the backends alone; `-- --jobs jax parity` runs only these jobs. The job
    `once` has the tests that PyTorch alone runs, and `torch` the others, unless there are arguments for pytest.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=None)
    known, others = parser.parse_known_args(session.posargs)
    install(session, "-e", ".[jax,tensorflow-cpu,torch,demo,pandas]", groups=["test", "export", "torchmetrics"])
    names = known.jobs or (BACKENDS if others else list(JOBS))
    folder = pathlib.Path(session.create_tmp()).resolve()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = {name: pool.submit(timed, session, folder / f"{name}.txt", JOBS[name], others) for name in names}
    for name in names:  # one after the other, since they ran side by side
        session.log(f"{name}:\n{(folder / f'{name}.txt').read_text()}")
    failed = [name for name in names if not runs[name].result()[0]]
    seconds = ", ".join(f"{name} {runs[name].result()[1]:.0f} s" for name in names)
    session.log(f"{seconds}; {sum(run.result()[1] for run in runs.values()):.0f} s of two cores")
    if failed:
        session.error(f"Failed: {', '.join(failed)}")


def timed(session, path, job, arguments):
    """Whether a job succeeded, and its seconds; its output goes to a file."""
    start = time.monotonic()
    with path.open("w") as output:
        try:
            job(session, output, arguments)
            succeeded = True
        except CommandFailed:
            succeeded = False
    return succeeded, time.monotonic() - start


def on_backend(backend, *selection):
    """The job that runs the tests of a backend, see tests/marks.py: those of a selection, or what `--` is given."""

    def job(session, output, arguments):
        environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}  # two processes share two cores
        if backend == "jax":
            environment |= compilation_cache(session) | COMPILE_FAST
        session.run("pytest", "--durations=40", *(arguments or selection), env=environment, stdout=output)

    return job


def accelerator(session, output, arguments):
    """Layers and losses on an accelerator that PyTorch only pretends: all tensors must be made there."""
    pretended = (
        "tests/test_pretended_accelerator.py",
        "tests/layers",
        "tests/losses",
        "-m",
        "not once and not refusal",
    )
    environment = backend_environment("torch") | {"OMP_NUM_THREADS": "1"}
    session.run("pytest", "-p", "tests.pretended_accelerator", *pretended, env=environment, stdout=output)


def parity(session, output, arguments):
    """The same weights, seeds and data on three backends: noise, outputs, gradients and a training run compared."""
    folder, cache = pathlib.Path(session.create_tmp()).resolve(), compilation_cache(session, "parity")
    files = [str(folder / f"{backend}.npz") for backend in BACKENDS]
    for backend, file in zip(BACKENDS, files, strict=True):
        environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"} | cache
        session.run("python", "-m", "tests.parity", "write", file, env=environment, stdout=output)
    session.run("python", "-m", "tests.parity", "compare", *files, stdout=output)


# The longest first, so that the two processes end together.
JOBS = {
    "tensorflow": on_backend("tensorflow"),
    "jax": on_backend("jax"),
    "once": on_backend("torch", "-m", "once or refusal"),
    "torch": on_backend("torch", "-m", "not once and not refusal"),
    "parity": parity,
    "accelerator": accelerator,
}


@nox.session
@nox.parametrize("backend", [nox.param(b, id=b, tags=[f"thorough-{b}"]) for b in BACKENDS])
def thorough(session, backend):
    """Every test on each backend, in an environment that has no other; weekly and before a release."""
    install(session, "-e", f".[{EXTRAS[backend]},demo]", groups=test_groups(backend))
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}  # a core for each worker
    if backend == "jax":
        environment |= compilation_cache(session) | COMPILE_FAST
    session.run("pytest", "--thorough", *TWO_WORKERS, "--durations=15", *session.posargs, env=environment)


@nox.session(python=nox.project.python_versions(PROJECT)[0])
@nox.parametrize("backend", [nox.param(b, id=b) for b in BACKENDS])
def min_versions(session, backend):
    """All tests, or those named behind `--`, on the oldest Python and packages that pyproject.toml allows.

    On PyTorch these are gigabytes.
    """
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


@nox.session(python=nox.project.python_versions(PROJECT)[1:])
@nox.parametrize("backend", [nox.param(b, id=b) for b in BACKENDS])
def newest(session, backend):
    """The tests with the mark `smoke` on each Python but the oldest, and what pip brings today, KerasHub among it.

    Some minutes each; on PyTorch these are gigabytes.
    """
    install_today(session, f".[{backend},hub,demo,pandas]")  # KerasHub brings TensorFlow, on every backend
    smoke(session, backend)


@nox.session(name="next", python=nox.project.python_versions(PROJECT)[-1])
@nox.parametrize("backend", [nox.param(b, id=b) for b in [*BACKENDS, "mlx"]])
def next_keras(session, backend):
    """The same with tonight's Keras and without KerasHub; on MLX, where Keras is tried alone, the doctor."""
    if backend == "mlx":
        install_today(session, ".[demo,pandas]", "keras-mlx", "mlx[cpu]")
    else:
        install_today(session, f".[{EXTRAS[backend]},demo,pandas]")
    # Both packages are the folder `keras`: whichever goes later takes files of the other along.
    session.run("python", "-m", "pip", "uninstall", "--yes", "keras", "keras-nightly")
    session.install("--no-compile", "keras-nightly")
    smoke(session, backend)


def install_today(session, package, *requirements):
    """Installs the package and the tests' packages in the newest versions, also where a run before left older ones."""
    tests = nox.project.dependency_groups(PROJECT, "test")
    session.install("--no-compile", "--upgrade", "--upgrade-strategy", "eager", "-e", package, *requirements, *tests)


def smoke(session, backend):
    """The doctor, which prints the versions, and on a backend that we support the tests that show whether it works."""
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}  # a core for each worker
    session.run("python", "-m", "keras_het", "doctor", env=environment)
    if backend in BACKENDS:
        session.run("pytest", "-m", "smoke", *TWO_WORKERS, *session.posargs, env=environment)


def oldest(*groups):
    """The lowest version of everything that the package, its extras and these dependency groups ask for, as pins."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [
        *PROJECT["project"]["dependencies"],
        *itertools.chain(*extras),
        *nox.project.dependency_groups(PROJECT, *groups),
    ]
    bounds = ((requirement.name, bound) for requirement in map(Requirement, wanted) for bound in requirement.specifier)
    return sorted({f"{name}=={bound.version}" for name, bound in bounds if bound.operator == ">="})


@nox.session
def fuzz(session):
    """Random heads, hostile configurations and files, on every backend; `-- --minutes 5`, `-- --backend torch`.

    `-- --soak` trains for 10,000 steps and watches memory, programs, losses and steps; `-- --seeds 0 99` runs the
    statistical tests for a hundred seeds, on PyTorch.
    """
    if "--seeds" in session.posargs:
        install(session, "-e", ".[torch,demo]", groups=["test"])
        environment = backend_environment("torch") | {"OMP_NUM_THREADS": "1"}
        selection = ["-m", "statistical", "--thorough", *TWO_WORKERS]
        session.run("pytest", *selection, *session.posargs, env=environment)
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


THREE = ",".join(EXTRAS.values())
INTEGRATIONS = {
    "hub": Integration("tests/hub", f"{THREE},hub", ("export",)),
    "weights": Integration("benchmarks/tests/real", f"{THREE},hub,demo", ("export", "real")),
    "cv": Integration("tests/cv", f"{THREE},cv", ("export",)),
    "devices": Integration("tests/distribution", f"{THREE},demo"),
    "cleanlab": Integration("tests/others", "jax,sklearn", ("cleanlab", "ppi"), ("jax",)),
    "peers": Integration("benchmarks/tests/peers", EXTRAS["tensorflow"], ("peers",), ("tensorflow",)),
    **{f"export-{b}": Integration("tests/export", EXTRAS[b], (f"export-{b}",), (b,)) for b in BACKENDS},
}


@nox.session
@nox.parametrize("name", [nox.param(name, id=name) for name in INTEGRATIONS])
def integrations(session, name):
    """KerasHub, pretrained weights, KerasCV, several devices, cleanlab, edward2, export formats; weekly."""
    folder, extras, groups, backends = INTEGRATIONS[name]
    install(session, "-e", f".[{extras}]", groups=["test", *groups])
    # A package below litert-torch brings a plugin for pytest that warns when it is imported.
    words = ["-p", "no:anyio", *(["--thorough"] if name == "devices" else [])]
    for backend in backends:
        environment = backend_environment(backend)
        if name == "devices":
            environment |= {"OMP_NUM_THREADS": "1"}
            environment |= compilation_cache(session) | COMPILE_FAST if backend == "jax" else {}
        session.run("pytest", *words, folder, *session.posargs, env=environment)


@nox.session
def bench(session):
    """A benchmark, as `-- labels.recipe --seeds 1 --backend torch`; `-- tests`: their tests; without a name a list."""
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
    install(session, "-e", f".[{EXTRAS[backend]},demo]", groups=test_groups(backend))
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}  # a core for each worker
    if backend == "jax":
        environment |= compilation_cache(session) | COMPILE_FAST
    selection = ["--thorough", *TWO_WORKERS, "--durations=15", *arguments]
    session.run("pytest", *selection, "benchmarks/tests", env=environment)


@nox.session
def demo(session):
    """Digits with three kinds of noise, and one picture of what is found; `-- --backend torch`, `-- --quick`."""
    backend, arguments = split_backend(session)
    install(session, "-e", f".[{EXTRAS[backend]},demo]")
    session.run("python", "-m", "benchmarks.demo", *arguments, env=backend_environment(backend))


@nox.session
def browser(session):
    """The report in a real Chromium, wide and narrow, light and dark: the machine's, or one that is installed."""
    install(session, "-e", ".[jax,demo]", groups=["test", "browser"])
    pictures = pathlib.Path(session.create_tmp()).resolve()
    environment = backend_environment("jax") | {"CHROMIUM": chromium(session) or "", "SCREENSHOTS": str(pictures)}
    session.run("pytest", "tests/browser", *session.posargs, env=environment)
    session.log(f"Screenshots: {pictures}")


@nox.session
def docs(session):
    """The site in build/site, of docs, guides and docstrings, without a warning; then its pages in a real Chromium."""
    install(session, groups=["docs", "test", "browser"])
    session.run("python", "-m", "mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    pictures = pathlib.Path(session.create_tmp()).resolve()
    environment = {"CHROMIUM": chromium(session) or "", "SCREENSHOTS": str(pictures)}
    # Its tests need neither Keras nor a backend, of which the other tests' conftest is full.
    session.run("pytest", "--confcutdir=tests/site", "tests/site", *session.posargs, env=environment)
    session.log(f"Site: {pathlib.Path('build/site/index.html').resolve()}, screenshots: {pictures}")


def chromium(session):
    """The path of the machine's Chromium, installed by apt where root can, or None for one that playwright brings."""
    found = first_of("chromium", "chromium-browser", "google-chrome")
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        session.run("apt-get", "update", external=True)
        session.run("apt-get", "install", "--yes", "--no-install-recommends", "chromium", external=True)
        return first_of("chromium")
    if found is None:
        session.run("playwright", "install", "--with-deps", "chromium")
    return found


def first_of(*names):
    """The path of the first of these programs that is installed, or None."""
    return next(filter(None, map(shutil.which, names)), None)


@nox.session
def guides(session):
    """The guides, run on every backend; `-- --backend torch` for one."""
    install(session, "-e", ".[jax,tensorflow-cpu,torch,hub,demo,pandas]", groups=["recipe"])
    for backend in backends_of(session):
        for guide in sorted(pathlib.Path("guides").resolve().glob("*.py")):
            session.chdir(session.create_tmp())
            session.run("python", str(guide), env=backend_environment(backend))


@nox.session
def gallery(session):
    """The gallery's entries, run on every backend; `-- --backend torch` for one, `-- --keep`: outputs for the site."""
    backend, arguments = split_backend(session)
    keeps = "--keep" in arguments
    install(session, "-e", ".[jax,tensorflow-cpu,torch,demo,pandas]", groups=["browser"] if keeps else [])
    browser = {"CHROMIUM": chromium(session) or ""} if keeps else {}  # for the pictures of reports
    if keeps:
        session.run("python", "docs/figures/report.py", env=backend_environment(backend) | browser)
    for each in [backend] if keeps else backends_of(session):
        session.run("python", "-m", "guides.gallery.lib.run", *arguments, env=backend_environment(each) | browser)


@nox.session
def notebooks(session):
    """A notebook of every guide, made and run; `-- --quick`: epochs of one batch, `-- --keep`: outputs for the site."""
    backend, arguments = split_backend(session)
    if {"--quick", "--keep"} <= set(arguments):
        session.error("The outputs of a quick run mean nothing: give `--quick` or `--keep`.")
    install(session, "-e", f".[{backend},hub,demo,pandas]", groups=["notebooks", "recipe"])
    session.run("python", "-m", "guides.notebooks.make", *(word for word in arguments if word != "--keep"))
    for guide in sorted(pathlib.Path("guides").glob("*.py")):
        notebook = f"guides/notebooks/{guide.stem}.ipynb"
        session.run("jupyter-execute", "--inplace", notebook, env=backend_environment(backend))
    if "--keep" in arguments:
        session.run("python", "-m", "guides.notebooks.outputs", env=backend_environment(backend))


@nox.session
def package(session):
    """Builds the wheel, installs it outside the repository, and runs the README's first example with it."""
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
    """The files of a release, in `dist`: built twice and found equal, checked, with a bill of materials (SBOM)."""
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
    """SHA-256 of every file of a folder, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def bill_of_materials(session, wheel, environment, path, epoch):
    """Writes what comes with the wheel, installed alone at the pinned versions, in the form of CycloneDX."""
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
