"""Reads a guide: a script in the form of keras.io, whose first string is a header.

Strings that stand alone are Markdown, and everything between them is code.
"""

import ast
import hashlib
import itertools


def cells(source):
    """Yields the kind, "markdown" or "code", and the text of each cell. The header becomes a title."""
    lines, texts = source.splitlines(), [*filter(is_text, ast.parse(source).body)]
    for text, following in itertools.pairwise([*texts, None]):
        yield "markdown", title(text.value.value) if text is texts[0] else text.value.value.strip()
        if code := "\n".join(lines[text.end_lineno : following and following.lineno - 1]).strip("\n"):
            yield "code", code


def is_text(statement):
    """Returns whether a statement is a string that stands alone."""
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant and isinstance(statement.value.value, str)


def title(header):
    """Returns Markdown of a guide's header."""
    fields = fields_of(header)
    return f"# {fields['Title']}\n\n{fields['Description']}"


def fields_of(header):
    """Returns the fields of a guide's header by name. Its lines are `Name: value`."""
    return dict(line.split(": ", 1) for line in header.strip().splitlines())


def header_of(source):
    """Returns the fields of the header of a guide."""
    return fields_of(next(filter(is_text, ast.parse(source).body)).value.value)


def seeds(source):
    """Returns the seeds in the header of a guide."""
    return [int(seed) for seed in header_of(source)["Seeds"].split(", ")]


def code_of(source):
    """Returns all code of a guide, its cells joined."""
    return "\n\n".join(text for kind, text in cells(source) if kind == "code")


def digest(code):
    """Returns a hash of the code, which shows whether stored outputs belong to it."""
    return hashlib.sha256(code.encode()).hexdigest()
