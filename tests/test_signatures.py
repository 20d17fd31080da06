"""Public names are annotated, and docstrings describe exactly the existing arguments and fields.

Rule D417 of ruff reports missing arguments of functions. It misses arguments of classes, and described ones that do not
exist.
"""

import dataclasses
import importlib
import inspect
import pathlib
import pkgutil
import re

import pytest

import keras_het
from tests.common import public_modules

pytestmark = pytest.mark.once

PACKAGE = pathlib.Path(keras_het.__file__).parent


def public_definitions():
    """Returns `{path: function or class}` of what the public modules export."""
    exported = [getattr(module, name) for module in public_modules(keras_het) for name in module.__all__]
    values = [value for value in exported if inspect.isclass(value) or inspect.isfunction(value)]
    return {f"{value.__module__}.{value.__qualname__}": value for value in values}


def records():
    """Returns `{path: class}` of the NamedTuples and dataclasses of the package, public or not."""
    names = [module.name for module in pkgutil.walk_packages([str(PACKAGE)], "keras_het.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    classes = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    inside = [value for value in classes if value.__module__.startswith("keras_het.") and fields(value) is not None]
    return {f"{value.__module__}.{value.__qualname__}": value for value in inside}


def fields(value):
    """Returns the fields that a NamedTuple or dataclass itself declares, or None for other classes."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return list(value._fields) if hasattr(value, "_fields") and issubclass(value, tuple) else None


def without_annotation(path, value):
    """Yields arguments, results and properties of a public name that have no annotation."""
    members = vars(value) if inspect.isclass(value) else {value.__name__: value}
    for name, member in members.items():
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        if isinstance(member, property):
            function, label = member.fget, f"{path}.{name}"
        else:
            function = getattr(member, "__func__", member)
            label = path if member is value else f"{path}.{name}"
        if inspect.isfunction(function) and function.__module__ == value.__module__:
            signature = inspect.signature(function)
            arguments = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
            yield from (f"{label}({p.name})" for p in arguments if p.annotation is p.empty)
            if signature.return_annotation is signature.empty and name != "__init__":
                yield label


def described(text, section):
    """Returns the names in a section of a docstring, also of `a, b: text`, or None without the section."""
    match = re.search(rf"^{section}:((?:\n+ .*)*)", inspect.cleandoc(text or ""), re.MULTILINE)
    items = re.findall(r"^ {4}(\*{0,2}\w+(?:, \w+)*): ", match[1], re.MULTILINE) if match else []
    return [name.lstrip("*") for item in items for name in item.split(", ")] if match else None


def wrong_arguments(value):
    """Returns arguments that a docstring lacks, describes twice, or invents."""
    parameters = inspect.signature(value).parameters.values()
    named = {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    variable, names = {p.name for p in parameters} - named, described(value.__doc__, "Args")
    if names is None:
        return named | variable if inspect.isclass(value) else set()  # of a function, D417 asks for them
    bases = inspect.getmro(value) if inspect.isclass(value) and variable else ()
    inherited = {name for base in bases for name in inspect.signature(base.__init__).parameters}
    twice = {name for name in names if names.count(name) > 1}
    return (named - set(names)) | (set(names) - named - variable - inherited) | twice


def wrong_fields(value, is_public):
    """Returns fields that a docstring lacks, describes twice, or invents."""
    names = described(value.__doc__, "Attributes")
    if names is None:
        return set(fields(value)) if is_public else set()
    return set(fields(value)) ^ set(names) | {name for name in names if names.count(name) > 1}


def test_public_names_are_annotated_and_their_arguments_and_fields_described():
    public, named = public_definitions(), records()
    assert len(public) > 60
    assert (PACKAGE / "py.typed").exists()
    assert [name for path, value in public.items() for name in without_annotation(path, value)] == []
    wrong = {path: wrong_arguments(value) for path, value in public.items() if path not in named}
    assert {path: names for path, names in wrong.items() if names} == {}
    fields_of = {path: wrong_fields(value, path in public) for path, value in named.items()}
    assert len(fields_of) > 20
    assert {path: names for path, names in fields_of.items() if names} == {}
