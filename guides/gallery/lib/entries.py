"""Reads the entries of the gallery: scripts in the form of a guide, with a header and code alone."""

import ast
import pathlib
from typing import NamedTuple

from guides.notebooks.reader import code_of, header_of, seeds

FOLDER = pathlib.Path(__file__).parents[1]
OUTPUTS = FOLDER / "outputs"
COLUMNS = 76  # of code and of prose, what a laptop shows without scrolling


class Entry(NamedTuple):
    """A script of the gallery: its name, what its header says, and its code."""

    name: str
    title: str
    description: str
    seeds: list
    code: str


def read(path):
    """The entry of a file."""
    source = path.read_text(encoding="utf-8")
    fields = header_of(source)
    return Entry(path.stem, fields["Title"], fields["Description"], seeds(source), code_of(source))


def names_used(code):
    """The public names of the package that some code uses, such as "keras_het.explain.explain", in order."""
    tree = ast.parse(code)
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            imported |= {alias.asname or alias.name: start + alias.name for alias in node.names}
    chains = (_chain(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    found = (".".join([imported.get(first, ""), *rest]) for first, *rest in filter(None, chains))
    names = [name for name in dict.fromkeys(found) if name.startswith("keras_het.")]
    return [name for name in names if not any(other.startswith(f"{name}.") for other in names)]


def _chain(node):
    """The names of `a.b.c`; empty for an attribute of anything but a name."""
    names = []
    while isinstance(node, ast.Attribute):
        names, node = [node.attr, *names], node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []
