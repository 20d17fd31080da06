"""Imports point down, no backend is named, every public name is documented, and every example runs."""

import ast
import doctest
import importlib
import inspect
import pathlib
import pickle
import pkgutil
import re

import pytest

import keras_het
from tests.common import public_modules, python

pytestmark = pytest.mark.once

MODULES = sorted(module.name for module in pkgutil.walk_packages(keras_het.__path__, "keras_het."))
PACKAGES = [
    "keras_het.parity",
    "keras_het", "keras_het.explain", "keras_het.callbacks", "keras_het.covariances",
    "keras_het.distribution", "keras_het.integrators", "keras_het.labels", "keras_het.labels.methods",
    "keras_het.layers", "keras_het.links", "keras_het.losses", "keras_het.metrics", "keras_het.models",
    "keras_het.ops",
]  # fmt: skip
OPTIONAL = ["matplotlib", "sklearn", "pandas", "keras_hub", "jinja2", "PIL"]


def within(name, prefixes):
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def test_the_package_without_the_label_tools_imports_no_optional_package_and_they_name_theirs():
    """Import-linter and ruff check the other imports, in pyproject.toml."""
    names = [name for name in PACKAGES if not name.startswith("keras_het.labels")]
    code = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({OPTIONAL}))  # an import of them is an error
import keras_het
for name in {names}:
    importlib.import_module(name)
assert "keras_het.labels" not in sys.modules
keras_het.HeteroscedasticDense(3)
print("the labels:")
keras_het.labels
"""
    result, needed = python("-c", code), "scikit-learn pandas jinja2"
    assert result.stdout == "the labels:\n", result.stderr
    assert f"ImportError: keras_het.labels needs more packages: pip install {needed}. " in result.stderr


def source_of(module):
    return pathlib.Path(importlib.util.find_spec(module).origin).read_text()


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


@pytest.mark.parametrize("name", PACKAGES)
def test_the_table_of_contents_is_sorted_and_complete_and_no_module_has_the_name_of_a_function_beside_it(name):
    package = importlib.import_module(name)
    assert package.__all__ == sorted(package.__all__, key=lambda name: (not name.isupper(), name))  # constants first
    defined = {key for key, value in vars(package).items() if within(getattr(value, "__module__", ""), (name,))}
    bases = {key for key in defined if inspect.isabstract(vars(package)[key])}
    assert {key for key in defined - bases if not key.startswith("_")} <= set(package.__all__)
    assert [key for key in package.__all__ if not hasattr(package, key)] == []
    # `import keras_het.explain.covariance as m` gave the function.
    folder = {module.name for module in pkgutil.iter_modules(getattr(package, "__path__", []))}
    assert [key for key in folder & {*package.__all__} if not inspect.ismodule(getattr(package, key))] == []


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("__main__")])
def test_the_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_the_flagship_layers_are_at_the_top_and_what_is_shown_is_public():
    assert keras_het.HeteroscedasticDense is keras_het.layers.HeteroscedasticDense
    assert keras_het.NoiseTransition is keras_het.layers.NoiseTransition
    assert pickle.loads(pickle.dumps(keras_het.HeteroscedasticDense)) is keras_het.HeteroscedasticDense
    assert {*keras_het.__all__, "__version__"} == set(dir(keras_het))
    # Python suggests a name like one that is misspelt.
    with pytest.raises(AttributeError, match="module 'keras_het' has no attribute 'HeteroscedasticDens'") as error:
        keras_het.HeteroscedasticDens  # noqa: B018
    assert (error.value.name, error.value.obj) == ("HeteroscedasticDens", keras_het)
    assert {module.__name__ for module in public_modules(keras_het)} <= set(PACKAGES)
