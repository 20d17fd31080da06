"""Sessions of nox: `python -m nox` lints, and tests on three backends; `python -m nox -l` lists the others."""

import argparse
import concurrent.futures
import hashlib
import itertools
import os
import pathlib
import shutil
import time

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement

nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"

PROJECT = nox.project.load_toml("pyproject.toml")
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


def split_backend(session):
    """The backend named behind `--` as `--backend NAME` (JAX if none is), and the other arguments."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--backend", choices=BACKENDS, default="jax")
    known, others = parser.parse_known_args(session.posargs)
    return known.backend, others


def backends_of(session):
    """The backend that is named behind `--`, or all."""
    return [split_backend(session)[0]] if any(word.startswith("--backend") for word in session.posargs) else BACKENDS


def test_groups(backend):
    """The dependency groups of the tests on a backend: some of other packages run where they cost least."""
    return ["test", "export", "torchmetrics"] if backend == "torch" else ["test"]


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

    Arguments behind `--` go to pytest, on the backends alone; `-- --jobs jax parity` runs only these jobs.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=None)
    known, others = parser.parse_known_args(session.posargs)
    install(session, "-e", ".[jax,tensorflow-cpu,torch,demo]", groups=["test", "export", "torchmetrics"])
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


def on_backend(backend):
    """The job that runs the tests of a backend, see tests/marks.py."""

    def job(session, output, arguments):
        environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}  # two processes share two cores
        if backend == "jax":
            environment |= compilation_cache(session) | COMPILE_FAST
        session.run("pytest", "--durations=40", *arguments, env=environment, stdout=output)

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
    "torch": on_backend("torch"),
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
    """Random heads, hostile configurations and files, on every backend; `-- --minutes 5`, `-- --backend torch`."""
    long_run(session, "tests.fuzz")


@nox.session
def soak(session):
    """A training of 10,000 steps that watches memory, programs, losses and steps, on every backend; `-- --steps N`."""
    long_run(session, "tests.soak")


def long_run(session, module):
    """Runs a module of the tests on each backend, or on the one that is named behind `--`, with the other arguments."""
    _, arguments = split_backend(session)
    install(session, "-e", ".[jax,tensorflow-cpu,torch]", groups=["test"])
    for backend in backends_of(session):
        session.run("python", "-m", module, *arguments, env=backend_environment(backend))


@nox.session
def seeds(session):
    """The statistical tests for a hundred seeds, on PyTorch; nightly. `-- --seeds 0 9` for ten."""
    install(session, "-e", ".[torch,demo]", groups=["test"])
    environment = backend_environment("torch") | {"OMP_NUM_THREADS": "1"}
    chosen = session.posargs or ["--seeds", "0", "99"]
    session.run("pytest", "-m", "statistical", "--thorough", *TWO_WORKERS, *chosen, env=environment)


@nox.session
def demo(session):
    """Digits with three kinds of wrong labels, and what is found out; `-- --backend torch` for another backend."""
    backend, arguments = split_backend(session)
    install(session, "-e", f".[{EXTRAS[backend]},demo]")
    session.run("python", "-m", "keras_het", "demo", "--backend", backend, *arguments, env=backend_environment(backend))


# What each benchmark needs beside the package and a backend: extras, dependency groups; and what it takes on two cores.
EVERY = ",".join(EXTRAS.values())
BENCHMARKS = {
    "arena": ("demo", ["recipe"], "half an hour or more"),
    "arena.decay": ("demo", ["recipe"], "not timed"),
    "cost.backbone": ("", [], "not timed"),
    "cost.covariance": ("", [], "ten minutes"),
    "cost.devices": ("", [], "not timed"),
    "cost.example_memory": (EVERY, [], "not timed"),
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
    "labels.truth": ("demo", [], "an hour; with --tasks digits a few minutes"),
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
def devices(session):
    """Every head and link on several devices, and their files, on each backend; `-- --backend torch` for one."""
    install(session, "-e", ".[jax,tensorflow-cpu,torch,demo]", groups=["test"])
    for backend in backends_of(session):
        environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}
        if backend == "jax":
            environment |= compilation_cache(session) | COMPILE_FAST
        session.run("pytest", "--thorough", "tests/distribution", env=environment)


@nox.session
def peers(session):
    """The same heads in edward2, in an environment of its own: imported weights compared, then time; `-- --quick`."""
    install(session, "-e", ".[tensorflow-cpu]", groups=["test", "peers"])
    environment = {**backend_environment("tensorflow"), "TF_USE_LEGACY_KERAS": "1"}
    session.run("pytest", "tests/peers", env=environment)
    session.run("python", "-m", "benchmarks.cost.peers", *session.posargs)


@nox.session
def cleanlab(session):
    """The real cleanlab with the estimator, in an environment of its own; `-- --backend torch` for another backend."""
    backend, arguments = split_backend(session)
    install(session, "-e", f".[{backend},sklearn]", groups=["test", "cleanlab"])
    session.run("pytest", "tests/cleanlab", *arguments, env=backend_environment(backend))


@nox.session
def hub(session):
    """Real KerasHub classes on three backends: presets, preprocessing, conversion, files, LoRA, int8."""
    on_every_backend(session, "tests/hub", "-e", ".[jax,tensorflow-cpu,torch,hub]")


@nox.session
def cv(session):
    """KerasCV classifiers on three backends."""
    on_every_backend(session, "tests/cv", "-e", ".[jax,tensorflow-cpu,torch,cv]")


def on_every_backend(session, tests, *requirements):
    """Runs tests on one backend after the other, in one environment that has all."""
    install(session, *requirements, groups=["test", "export"])
    for backend in BACKENDS:
        session.run("pytest", tests, *session.posargs, env=backend_environment(backend))


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
@nox.parametrize("backend", [nox.param(b, id=b, tags=[f"export-{b}"]) for b in BACKENDS])
def export(session, backend):
    """Every export format of this backend, run by the format's own runtime."""
    install(session, "-e", f".[{EXTRAS[backend]}]", groups=["test", f"export-{backend}"])
    # A package below litert-torch brings a plugin for pytest that warns when it is imported.
    session.run("pytest", "-p", "no:anyio", "tests/export", *session.posargs, env=backend_environment(backend))


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
    install(session, "build", "jax")
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
