"""Every public name has a signature that an editor can read without importing.

It documents its arguments, one a line, or its fields.
"""

import ast
import dataclasses
import importlib
import inspect
import logging
import pathlib
import re
from typing import NamedTuple

import griffe
import pytest

import keras_het

pytestmark = pytest.mark.once

CLASS_METHODS = ("__init__", "__call__")
NO_NOUNS = {
    *("as", "at", "by", "for", "from", "how", "if", "in", "not", "of", "on", "see", "that", "to", "what", "whatever"),
    *("when", "where", "whether", "which", "with", "without"),
}
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
    for name in [*names, *(["plots"] if module.name == "explain" else [])]:
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
    named, variable = taken(value)
    if names is None:
        return named | variable
    if not names:
        return named
    allowed = named | variable | (of_bases(value) if variable else set())
    return (named - set(names)) | (set(names) - allowed) | {name for name in names if names.count(name) > 1}


def unnamed_arguments(method, owner):
    """Arguments of a method that its docstring does not name; none of a method that a base class of its owner has."""
    if any(method.__name__ in vars(base) for base in owner.__mro__[1:]):
        return set()
    named, variable = taken(method)
    return {name for name in named | variable if not re.search(rf"\b{name}\b", method.__doc__ or "")}


def fields(value):
    """The fields of a NamedTuple or dataclass; None for anything else."""
    if inspect.isclass(value) and dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return list(value._fields) if inspect.isclass(value) and issubclass(value, tuple) else None


def attributes(text):
    """The names in the Attributes section of a docstring, also of `a, b: text`, or None if it has none."""
    section = re.search(r"^Attributes:((?:\n+ .*)*)", inspect.cleandoc(text or ""), re.MULTILINE)
    items = re.findall(r"^ {4}(\w+(?:, \w+)*): ", section[1], re.MULTILINE) if section else []
    return [name for item in items for name in item.split(", ")] if section else None


def wrong_attributes(value, needed=True):
    """Fields of a NamedTuple or dataclass that its Attributes section lacks, and names in it that are no fields."""
    names = attributes(value.__doc__)
    if names is None:
        return set(fields(value)) if needed else set()
    return set(fields(value)) ^ set(names) | {name for name in names if names.count(name) > 1}


def without_noun(source):
    """Fields of the sections Args and Attributes in a module whose text begins with another word than a noun."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for section in re.findall(r"^(?:Args|Attributes):\n((?: .*\n?)+)", ast.get_docstring(node) or "", re.M):
                for name, word in re.findall(r"^ {4}([\w*][\w*, ]*): ([\w']+)", section, re.M):
                    if word.lower() in NO_NOUNS:
                        yield f"{node.name}({name}): {word}"


def records(module):
    """The paths of the NamedTuples and dataclasses of a module and those in it, public or not."""
    for member in module.members.values():
        if member.is_alias:
            continue
        if member.is_module:
            yield from records(member)
        elif member.is_class and ("dataclass" in member.labels or "NamedTuple" in map(str, member.bases)):
            yield member.path


def imported(path):
    """What a path such as keras_het.layers.heteroscedastic_dense.Clock.tick names."""
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
RECORDS = sorted(records(PACKAGE))
METHODS = sorted({m.path for m in public_functions(NAMES)} - {*NAMES, *(f"{path}.__init__" for path in NAMES)})


def test_most_of_the_package_is_seen():
    assert {
        "keras_het.layers.heteroscedastic_dense.HeteroscedasticDense",
        "keras_het.layers.estimate_cost.estimate_cost",
    } <= set(NAMES)
    assert any(path.startswith("keras_het.explain.plots.") for path in NAMES)
    assert len(NAMES) > 80
    assert sum(documented(imported(path).__doc__) is not None for path in NAMES) > 75
    assert {"keras_het.labels.annotators.Confusion", "keras_het.training.table.Score"} <= set(RECORDS)
    assert len(METHODS) > 130


def test_public_names_are_annotated():
    assert without_annotation(NAMES) == []


def test_an_argument_is_documented_if_and_only_if_it_exists():
    """The rule D417 of ruff sees missing arguments of functions, and not those of classes, nor what is too much."""
    found = {path: wrong_arguments(imported(path)) for path in NAMES.keys() - set(RECORDS)}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_method_names_its_arguments():
    """In a section, which is complete, or in its text, with their shapes. A method that overrides one has its words."""
    found = {path: unnamed_arguments(imported(path), imported(path.rpartition(".")[0])) for path in METHODS}
    sections = {path: imported(path) for path in METHODS if documented(inspect.getdoc(imported(path))) is not None}
    found |= {path: found[path] | wrong_arguments(method) for path, method in sections.items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_field_is_documented_if_and_only_if_it_exists():
    """A NamedTuple or dataclass that is not public may have no section."""
    found = {path: wrong_attributes(imported(path), needed=path in NAMES) for path in RECORDS}
    assert {path: names for path, names in found.items() if names} == {}


def test_no_public_record_is_overlooked():
    assert {path for path in NAMES if fields(imported(path)) is not None} == NAMES.keys() & set(RECORDS)


def test_a_field_begins_with_a_noun():
    """Not with of, as or whether: then it reads as a sentence without its subject."""
    paths = pathlib.Path(keras_het.__file__).parent.rglob("*.py")
    assert {str(path): found for path in paths if (found := list(without_noun(path.read_text())))} == {}


@pytest.mark.planted
def test_a_field_that_begins_with_another_word_is_caught():
    text = "Of a kind.\n\n    Args:\n        x: number.\n            two: of.\n        y: of x.\n\n    z: of none.\n"
    assert list(without_noun(f'def f(x, y):\n    """{text}    """\n')) == ["f(y): of"]


def test_an_editor_reads_the_signature_that_python_has():
    for path, member in NAMES.items():
        if member.is_function:
            assert [p.name for p in member.parameters] == list(inspect.signature(imported(path)).parameters), path


def test_types_are_announced():
    assert (pathlib.Path(keras_het.__file__).parent / "py.typed").exists()


@pytest.mark.planted
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


@pytest.mark.planted
@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("No section.", {"x", "y"}),
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


@pytest.mark.planted
def test_a_class_without_a_section_is_caught():
    class Missing:
        """A class."""

        def __init__(self, a, *, b=1, **kwargs): ...

    class Plain:
        """A class without arguments."""

    assert wrong_arguments(Missing) == {"a", "b", "kwargs"}
    assert wrong_arguments(Plain) == set()


@pytest.mark.planted
@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("No section.", {"x", "y"}),
        ("Args, no attributes.\n\nArgs:\n    x: a number.\n    y: another.", {"x", "y"}),
        ("Good.\n\nAttributes:\n    x: a number.\n    y: another,\n        on two lines: yes.\n\nz: no name.", set()),
        ("Good in a group.\n\nAttributes:\n    x, y: numbers.", set()),
        ("One is missing.\n\nAttributes:\n    x: a number.", {"y"}),
        ("One is no field.\n\nAttributes:\n    x, z: numbers.\n    y: another.", {"z"}),
        ("One was renamed.\n\nAttributes:\n    x: a number.\n    why: another.", {"y", "why"}),
        ("Twice.\n\nAttributes:\n    x, y: numbers.\n    x: a number.", {"x"}),
    ],
)
def test_wrong_attributes_are_caught(text, wrong):
    class Record(NamedTuple):
        x: int
        y: int

    @dataclasses.dataclass
    class Data:
        x: int
        y: int

    for value in (Record, Data):
        value.__doc__ = text
        assert wrong_attributes(value) == wrong
        assert wrong_attributes(value, needed=False) == (set() if "Attributes" not in text else wrong)


def test_records_are_found():
    source = (
        "import dataclasses\n"
        "from typing import NamedTuple\n"
        "class A(NamedTuple):\n"
        "    x: int\n"
        "@dataclasses.dataclass\n"
        "class B:\n"
        "    x: int\n"
        "class C: ...\n"
    )
    with griffe.temporary_visited_module(source, module_name="planted") as module:
        assert list(records(module)) == ["planted.A", "planted.B"]


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


@pytest.mark.planted
def test_an_argument_that_a_method_does_not_name_is_caught():
    class Base:
        def f(self, x): ...

    class Planted(Base):
        def f(self, x): ...

        def g(self, x, xy):
            """Of `xy`."""

    assert unnamed_arguments(Planted.f, Planted) == set()
    assert unnamed_arguments(Planted.g, Planted) == {"x"}
