"""Reads a guide: a script in the form of keras.io, whose first string is a header.

The strings that stand alone are Markdown, and all between them is code.
"""

import ast
import hashlib
import itertools


def cells(source):
    """The kind, "markdown" or "code", and the text of each cell, in order; the header becomes a title."""
    lines, texts = source.splitlines(), [*filter(is_text, ast.parse(source).body)]
    for text, following in itertools.pairwise([*texts, None]):
        yield "markdown", title(text.value.value) if text is texts[0] else text.value.value.strip()
        if code := "\n".join(lines[text.end_lineno : following and following.lineno - 1]).strip("\n"):
            yield "code", code


def is_text(statement):
    """Whether a statement is a string that stands alone."""
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant and isinstance(statement.value.value, str)


def title(header):
    """Markdown of a guide's header."""
    fields = fields_of(header)
    return f"# {fields['Title']}\n\n{fields['Description']}"


def fields_of(header):
    """The fields of a guide's header, whose lines are `Name: value`, by name."""
    return dict(line.split(": ", 1) for line in header.strip().splitlines())


def header_of(source):
    """The fields of the header of a guide."""
    return fields_of(next(filter(is_text, ast.parse(source).body)).value.value)


def seeds(source):
    """The seeds that a guide runs with, as its header says."""
    return [int(seed) for seed in header_of(source)["Seeds"].split(", ")]


def code_of(source):
    """All code of a guide, its cells joined."""
    return "\n\n".join(text for kind, text in cells(source) if kind == "code")


def digest(code):
    """A number that differs for other code: kept outputs are of this code if it is theirs."""
    return hashlib.sha256(code.encode()).hexdigest()
