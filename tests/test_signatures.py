"""Every public name has a signature that an editor can read without importing.

It documents its arguments, one a line.
"""

import importlib
import inspect
import logging
import pathlib

import griffe
import pytest

import keras_het

CLASS_METHODS = ("__init__", "__call__")
logging.getLogger("griffe").setLevel(logging.ERROR)  # it warns of sections such as "Source:", which it leaves as text
PACKAGE = griffe.load(
    "keras_het", search_paths=[pathlib.Path(keras_het.__file__).parent.parent], allow_inspection=False
)


def target(member):
    return member.final_target if member.is_alias else member


def public(module, found=None):
    """{path: function or class} of the names that a module exports, and the modules among them export.

    `plots` is one on demand.
    """
    found = {} if found is None else found
    names = [str(getattr(name, "name", name)) for name in module.exports or ()]
    for name in [*names, *(["plots"] if module.name == "analysis" else [])]:
        member = target(module.members[name])
        if member.is_module:
            public(member, found)
        elif member.is_function or member.is_class:
            found[member.path] = member
    return found


def public_methods(definition):
    """The methods of a class that users see, by their own definition."""
    members = [member for member in definition.members.values() if not member.is_alias]
    return [m for m in members if m.is_function and (not m.name.startswith("_") or m.name in CLASS_METHODS)]


def public_functions(definitions):
    """Functions and methods: all that is called."""
    for definition in definitions.values():
        yield from [definition] if definition.is_function else public_methods(definition)


def parameters(function):
    """Its parameters, without that which the caller does not give."""
    return [parameter for parameter in function.parameters if parameter.name not in ("self", "cls")]


def without_annotation(definitions):
    """Parameters, results and properties of public names that nothing is said of."""
    missing = []
    for function in public_functions(definitions):
        missing += [f"{function.path}({p.name})" for p in parameters(function) if p.annotation is None]
        missing += [function.path] if function.returns is None and function.name != "__init__" else []
    properties = [m for d in definitions.values() if d.is_class for m in d.members.values() if "property" in m.labels]
    return missing + [m.path for m in properties if m.annotation is None and not m.name.startswith("_")]


def documented(text):
    """The names in the Args section of a docstring, or None if it has none."""
    for section in griffe.Docstring(text or "").parse("google"):
        if section.kind is griffe.DocstringSectionKind.parameters:
            return [parameter.name.lstrip("*") for parameter in section.value]
    return [] if "Args:" in (text or "") else None  # a section that no tool can read


def taken(value):
    """Arguments that something takes, and whether by `**kwargs` those of its base classes."""
    found = list(inspect.signature(value).parameters.values())
    named = {p.name for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)} - {"self"}
    return named, {p.name for p in found} - named - {"self"}


def of_bases(value):
    """Arguments of the constructors of a class and its bases, which `**kwargs` brings to them."""
    bases = value.__mro__ if inspect.isclass(value) else ()
    return {name for base in bases if base is not object for name in inspect.signature(base.__init__).parameters}


def wrong_arguments(value):
    """Arguments of a function or class that its Args section lacks, and names in it that are no arguments."""
    names = documented(inspect.getdoc(value) if not inspect.isclass(value) else value.__doc__)
    if names is None:
        return set()
    named, variable = taken(value)
    if not names:
        return named
    allowed = named | variable | (of_bases(value) if variable else set())
    return (named - set(names)) | (set(names) - allowed) | {name for name in names if names.count(name) > 1}


def imported(path):
    """What a path such as keras_het.layers.clock.Clock.tick names."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            value = getattr(value, part)
        return value
    raise ValueError(f"Nothing is named {path}")


NAMES = public(PACKAGE)
CALLED = sorted(
    {*NAMES, *(function.path for function in public_functions(NAMES))} - {f"{path}.__init__" for path in NAMES}
)


def test_most_of_the_package_is_seen():
    assert {"keras_het.layers.heteroscedastic_dense.HeteroscedasticDense", "keras_het.planning.plan"} <= set(NAMES)
    assert any(path.startswith("keras_het.analysis.plots.") for path in NAMES)
    assert len(NAMES) > 120
    assert sum(documented(imported(path).__doc__) is not None for path in NAMES) > 60


def test_public_names_are_annotated():
    assert without_annotation(NAMES) == []


@pytest.mark.parametrize("path", CALLED)
def test_an_argument_is_documented_if_and_only_if_it_exists(path):
    assert wrong_arguments(imported(path)) == set()


@pytest.mark.parametrize("path", sorted(path for path, member in NAMES.items() if member.is_function))
def test_an_editor_reads_the_signature_that_python_has(path):
    assert [p.name for p in NAMES[path].parameters] == list(inspect.signature(imported(path)).parameters)


def test_types_are_announced():
    assert (pathlib.Path(keras_het.__file__).parent / "py.typed").exists()


def test_missing_annotations_are_caught():
    source = (
        "def f(x, y: int): ...\n"
        "class C:\n"
        "    def __init__(self, z): ...\n"
        "    @property\n"
        "    def p(self): ...\n"
        "    def _q(self, a): ...\n"
    )
    with griffe.temporary_visited_module(source, module_name="planted") as module:
        found = without_annotation({"planted.f": module["f"], "planted.C": module["C"]})
    assert found == ["planted.f(x)", "planted.f", "planted.C.__init__(z)", "planted.C.p"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("No arguments.", set()),
        ("Good.\n\nArgs:\n    x: a number.\n    y: another,\n        on two lines: yes.", set()),
        ("One is missing.\n\nArgs:\n    x: a number.", {"y"}),
        ("One is no argument.\n\nArgs:\n    x: a number.\n    y: another.\n    z: a third.", {"z"}),
        ("Two on a line.\n\nArgs:\n    x, y: numbers.", {"x", "y", "x, y"}),
        ("Two on a line.\n\nArgs:\n    x: a number.    y: another.", {"y"}),
        ("On the line of the head.\n\nArgs: x: a number.    y: another.", {"x", "y"}),
        ("Twice.\n\nArgs:\n    x: a number.\n    y: another.\n    x: a number.", {"x"}),
    ],
)
def test_wrong_sections_are_caught(text, wrong):
    def function(x, y): ...

    function.__doc__ = text
    assert wrong_arguments(function) == wrong


def test_what_kwargs_bring_to_a_base_class_is_an_argument():
    class Base:
        def __init__(self, a): ...

    class Derived(Base):
        """A class.

        Args:
            b: of its own.
            a: of the base.
        """

        def __init__(self, b, **kwargs): ...

    assert wrong_arguments(Derived) == set()
    Derived.__doc__ = Derived.__doc__.replace("a: of", "c: of")
    assert wrong_arguments(Derived) == {"c"}
