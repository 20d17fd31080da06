"""What every test starts from: no display, one seed, and a Keras without state of earlier tests (names, dtype policy).

With one seed a test is the same in every run; and heads that draw their own seed are one program on JAX, which is
compiled once. It holds for the tests of the package and for those of `benchmarks`. `tests/marks.py` says which tests
run on which backend.
"""

import gc

import keras
import pytest

from tests.marks import not_collected, runs_here

try:
    import matplotlib
except ImportError:  # an extra
    pass
else:
    matplotlib.use("agg")

APART = 10_000  # the seeds of one run of a statistical test from those of the next
collect_ignore = not_collected()


def pytest_addoption(parser):
    parser.addoption(
        "--thorough", action="store_true", help="run every test on this backend, as `nox -s thorough` does"
    )
    parser.addoption(
        "--seeds", nargs=2, type=int, default=(0, 0), metavar=("FIRST", "LAST"), help="of the statistical tests"
    )


def pytest_generate_tests(metafunc):
    """Gives a statistical test its first seed: 0, or those of `--seeds`, far enough apart for all that it draws."""
    if "base_seed" in metafunc.fixturenames:
        first, last = metafunc.config.getoption("--seeds")
        seeds = range(first, last + 1)
        metafunc.parametrize("base_seed", [APART * seed for seed in seeds], ids=[f"seed {seed}" for seed in seeds])


@pytest.fixture
def redraws(pytestconfig):
    """How often a statistical test draws: a tenth of the number by default, all with `--thorough` and `--seeds`."""
    whole = pytestconfig.getoption("--thorough") or pytestconfig.getoption("--seeds") != (0, 0)
    return lambda count: count if whole else max(1, count // 10)


def pytest_collection_modifyitems(config, items):
    """Leaves out what the default check does not run on this backend."""
    if config.getoption("--thorough"):
        return
    chosen = {True: [], False: []}
    for item in items:
        marks, folder = {mark.name for mark in item.iter_markers()}, item.path.parent.name
        chosen[runs_here(marks, keras.config.backend(), folder)].append(item)
    items[:] = chosen[True]
    config.hook.pytest_deselected(items=chosen[False])


def pytest_collection_finish():
    """Leaves the modules out of the search for garbage: it would walk through three backends again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def clear_keras_session():
    keras.utils.set_random_seed(0)
    yield
    keras.utils.clear_session(free_memory=False)
