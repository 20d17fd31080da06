"""Imports point down, no backend is named, every public name is documented, and every example runs."""

import ast
import doctest
import importlib
import inspect
import os
import pathlib
import pickle
import pkgutil
import re
import shutil
import subprocess
import sys

import pytest

import keras_het
from keras_het import integrators
from tests import house, planted
from tests.house import public_modules

pytestmark = pytest.mark.once

PACKAGE = pathlib.Path(keras_het.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(module.name for module in pkgutil.walk_packages(keras_het.__path__, "keras_het."))
PACKAGES = [
    "keras_het.parity",
    "keras_het", "keras_het.explain", "keras_het.callbacks", "keras_het.covariances",
    "keras_het.distribution", "keras_het.integrators", "keras_het.labels", "keras_het.labels.methods",
    "keras_het.layers", "keras_het.links", "keras_het.losses", "keras_het.metrics", "keras_het.models",
    "keras_het.ops",
]  # fmt: skip

MOST_FLOORS, MOST_LOOSE = 8, 6
MOST_DEEP, MOST_DEEP_IN_PREDICTION = 10, 7  # house.depth, with the wrappers that PyTorch's compiler needs
MOST_FORWARD, MOST_DISTRIBUTIONS = 3, 4
# The floors of the rooms are a contract of import-linter, in pyproject.toml, which the session `lint` checks.
FORBIDDEN = ("jax", "torch", "tensorflow", "keras.src", "keras.backend")
LABORATORY = ("benchmarks", "tests", "guides")  # which import the package
OPTIONAL = ("matplotlib", "sklearn", "pandas", "keras_hub", "jinja2", "PIL")
# The label tools, which no other module imports at once, and the optional packages that they need.
LATE, LATE_PACKAGES = "keras_het.labels", ("sklearn", "pandas", "jinja2")


def within(name, prefixes):
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def imported(tree):
    """Returns the imports of a module, by statement or function, and the attributes of keras under any alias."""
    nodes = list(ast.walk(tree))
    aliases = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    keras_names = {"keras"} | {alias.asname for alias in aliases if alias.name == "keras"}
    yield from (alias.name for alias in aliases)
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in keras_names:
            yield f"keras.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (argument.value for argument in node.args if isinstance(argument, ast.Constant))


def imported_at_once(tree):
    """Returns the imports of a module outside functions and methods."""
    class_nodes = [node for part in tree.body if isinstance(part, ast.ClassDef) for node in part.body]
    statements = [node for node in (*tree.body, *class_nodes) if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return imported(ast.Module(statements, []))


def wrong_imports(module, source):
    """Returns a module's imports that its room does not allow, and optional packages that it imports at once."""
    tree = ast.parse(source)
    wrong = [name for name in imported(tree) if within(name, (*FORBIDDEN, *LABORATORY))]
    needed = (LATE, *LATE_PACKAGES) if within(module, (LATE,)) else ()
    wrong += [name for name in imported_at_once(tree) if within(name, (*OPTIONAL, LATE)) and not within(name, needed)]
    return wrong


def source_of(module):
    return pathlib.Path(importlib.util.find_spec(module).origin).read_text()


@pytest.mark.parametrize("module", ["keras_het", *MODULES])
def test_imports_name_no_backend_no_optional_package_and_no_benchmark(module):
    assert wrong_imports(module, source_of(module)) == []


@pytest.mark.planted
@pytest.mark.parametrize(("module", "line"), [
    ("keras_het.explain.drawing", "import matplotlib.pyplot as plt"),
    ("keras_het.commands.doctor", "import torch.nn"),
    ("keras_het.ops.nodes", "from jax import numpy"),
    ("keras_het.losses.robust", "from benchmarks.lib import harness"),
    ("keras_het.models", "def planted():\n    import benchmarks.lib"),
    ("keras_het.integrators", "from keras.src import ops"),
    ("keras_het.layers", "import keras\nkeras.backend.backend()"),
    ("keras_het.layers", "import keras as k\nk.backend.backend()"),
    ("keras_het.layers", "import importlib\nimportlib.import_module('jax')"),
    ("keras_het.labels.issues.page", "import matplotlib.figure"),
    ("keras_het.labels.issues.page", "from PIL import Image"),
    ("keras_het.explain.metrics", "from sklearn import datasets"),
    ("keras_het.models.raw_inputs", "import keras_hub"),
    ("keras_het.labels.classifier", "import matplotlib"),
    ("keras_het", "from keras_het import labels"),
    ("keras_het.explain", "from keras_het.labels import classifier"),
    ("keras_het.labels.choice", "class Search:\n    from matplotlib.figure import Figure"),
])  # fmt: skip
def test_a_planted_wrong_import_is_caught(module, line):
    assert wrong_imports(module, line)


UPWARD = [
    ("keras_het.ops.random", "from keras_het import layers"),
    ("keras_het.base.batches", "from keras_het.ops.random import normal"),
    ("keras_het.integrators", "import keras_het.layers"),
    ("keras_het.covariances.covariance", "from keras_het.layers import HeteroscedasticDense"),
    ("keras_het.links", "from keras_het.integrators import ClosedForm"),
    ("keras_het.layers.heteroscedastic_dense", "from keras_het.commands import doctor"),
    ("keras_het.layers.heteroscedastic_dense", "from keras_het.models import heteroscedastic"),
    ("keras_het.models.conversion", "import keras_het.commands.doctor"),
    ("keras_het.losses", "from keras_het.layers import NoiseTransition"),
    ("keras_het.callbacks", "import keras_het.labels"),
    ("keras_het.base.graph", "from keras_het.layers import HeteroscedasticDense"),
    ("keras_het.losses.robust", "from keras_het.callbacks import TrainingDynamics"),
    ("keras_het.reading.check", "from keras_het.models import heteroscedastic"),
    ("keras_het.layers", "from keras_het.callbacks import TransitionMonitor"),
    ("keras_het.labels.choice", "from keras_het.commands import doctor"),
    ("keras_het.labels.cleaning", "import benchmarks.lib"),
]


def lint_imports(folder):
    """Returns exit status and output of import-linter for the package in a folder."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    result = subprocess.run([*command, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True)
    return result.returncode, result.stdout


@pytest.mark.planted
def test_planted_imports_that_point_up_are_caught(tmp_path):
    """Each in a function of its module, all at once."""
    shutil.copytree(PACKAGE, tmp_path / "keras_het")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert lint_imports(tmp_path)[0] == 0
    for module, line in UPWARD:
        path = tmp_path.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        path.write_text(f"{path.read_text()}\n\ndef planted():\n    {line}\n")
    status, output = lint_imports(tmp_path)
    assert status == 1
    arrows = re.findall(r"(keras_het[\w.]*) -> ((?:keras_het|benchmarks)[\w.]*)", output)
    assert {module for module, _ in UPWARD} <= {module for module, _ in arrows}


OF_TUPLES = {"_asdict", "_replace", "_fields"}


def defined_privates(source):
    """Returns private names that a module defines: functions, classes, variables and attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def foreign_privates(source, own):
    """Returns private attributes, also in `getattr` and `hasattr`, that the package itself does not define."""
    for node in ast.walk(ast.parse(source)):
        names = [node.attr] if isinstance(node, ast.Attribute) else []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            names = [part.value for part in node.args[1:2] if isinstance(part, ast.Constant)]
        yield from (name for name in names if re.match("_[a-z]", name) and name not in own | OF_TUPLES)


def test_private_attributes_of_keras_are_read_in_one_file():
    own = {name for module in MODULES for name in defined_privates(source_of(module))}
    foreign = {module: sorted(set(foreign_privates(source_of(module), own))) for module in MODULES}
    assert [module for module, names in foreign.items() if names] == ["keras_het.base.internals"], foreign
    planted = "model._flatten_layers()\nhasattr(x, '_keras_history')\nself._mine"
    assert set(foreign_privates(planted, {"_mine"})) == {"_flatten_layers", "_keras_history"}


def test_an_optional_package_inside_a_function_is_right():
    assert not wrong_imports("keras_het.explain", "def load():\n    from sklearn import datasets\n    return datasets")
    assert not wrong_imports("keras_het.labels.synthetic", "import pandas\nfrom sklearn import datasets")
    assert not wrong_imports(
        "keras_het.labels.choice", "class Search:\n    def plot(self):\n        import matplotlib.figure"
    )


@pytest.mark.parametrize("name", PACKAGES)
def test_the_table_of_contents_is_sorted_and_complete(name):
    package = importlib.import_module(name)
    assert package.__all__ == sorted(package.__all__, key=lambda name: (not name.isupper(), name))  # constants first
    defined = {key for key, value in vars(package).items() if within(getattr(value, "__module__", ""), (name,))}
    bases = {key for key in defined if inspect.isabstract(vars(package)[key])}
    assert {key for key in defined - bases if not key.startswith("_")} <= set(package.__all__)
    assert [key for key in package.__all__ if not hasattr(package, key)] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_no_module_has_the_name_of_a_public_function_beside_it(name):
    """`import keras_het.explain.covariance as m` gave the function."""
    package = importlib.import_module(name)
    folder = {module.name for module in pkgutil.iter_modules(getattr(package, "__path__", []))}
    assert [key for key in folder & {*package.__all__} if not inspect.ismodule(getattr(package, key))] == []


def test_the_house_is_light():
    pairs, rooms = house.arrows()
    assert max(house.floors(pairs, rooms).values()) <= MOST_FLOORS
    assert len(house.loose_modules()) <= MOST_LOOSE
    training, prediction, forward, both = house.depth()
    assert len(training) <= MOST_DEEP
    assert len(prediction) <= MOST_DEEP_IN_PREDICTION
    assert "call" in {*training} & {*prediction}
    assert forward <= MOST_FORWARD
    assert both <= MOST_DISTRIBUTIONS


@pytest.mark.planted
def test_a_deeper_call_is_seen(monkeypatch):
    """Also one whose function has the name at which a meter once stopped."""
    before = house.depth()

    def call(*arguments, **options):
        return expectation(*arguments, **options)

    expectation = integrators.expectation
    monkeypatch.setattr(call, "__code__", call.__code__.replace(co_filename=str(house.PACKAGE / "planted.py")))
    monkeypatch.setattr(integrators, "expectation", call)
    assert [len(stack) for stack in house.depth()[:2]] == [len(stack) + 1 for stack in before[:2]]


@pytest.mark.planted
def test_a_circle_of_rooms_is_caught():
    with pytest.raises(RecursionError):
        house.floors({("ops", "layers"), ("layers", "ops")}, {"ops", "layers"})
    assert house.floors({("layers", "ops")}, {"ops", "layers"}) == {"ops": 1, "layers": 2}


def test_every_public_module_is_a_folder_with_a_table_of_contents():
    assert {module.__name__ for module in public_modules(keras_het)} <= set(PACKAGES)


EXAMPLES = [
    pytest.param(name, marks=pytest.mark.smoke) if ".layers." in name and ">>>" in source_of(name) else name
    for name in MODULES
    if not name.endswith("__main__")
]


@pytest.mark.parametrize("module", EXAMPLES)  # the examples of layers run on every backend
def test_the_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_enough_docstrings_have_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        test
        for name in MODULES
        if not name.endswith("__main__")
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]
    assert len(examples) >= 15


@pytest.mark.parametrize("bug", planted.BUGS, ids=[bug.name for bug in planted.BUGS])
def test_a_bug_to_plant_is_of_todays_code(bug):
    assert planted.changed((ROOT / bug.file).read_text(), bug)


def test_a_misspelt_name_is_given_to_python_which_suggests_one_like_it():
    with pytest.raises(AttributeError, match="module 'keras_het' has no attribute 'HeteroscedasticDens'") as error:
        keras_het.HeteroscedasticDens  # noqa: B018
    assert (error.value.name, error.value.obj) == ("HeteroscedasticDens", keras_het)
    assert "HeteroscedasticDense" in dir(error.value.obj)


def test_the_flagship_layers_are_at_the_top_and_what_is_shown_is_public():
    assert keras_het.HeteroscedasticDense is keras_het.layers.HeteroscedasticDense
    assert keras_het.NoiseTransition is keras_het.layers.NoiseTransition
    assert pickle.loads(pickle.dumps(keras_het.HeteroscedasticDense)) is keras_het.HeteroscedasticDense
    assert {*keras_het.__all__, "__version__"} == set(dir(keras_het))
