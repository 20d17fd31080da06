"""The guides as pages: a guide is a Python file whose bare strings are its text."""

import ast


def guide_page(source):
    """Markdown of a guide: the head's title and description, then text and code in turn."""
    head, *parts = _parts(source)
    fields = dict(line.split(": ", 1) for line in head.strip().splitlines())
    return "\n\n".join([f"# {fields['Title']}", f"*{fields['Description']}*", *parts]) + "\n"


def _parts(source):
    """The strings as they are, and the lines between them as blocks of code."""
    lines, done = source.splitlines(), 0
    for node in ast.parse(source).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from _code(lines[done : node.lineno - 1])
            yield node.value.value.strip()
            done = node.end_lineno
    yield from _code(lines[done:])


def _code(lines):
    code = "\n".join(lines).strip()
    if code:
        yield f"```python\n{code}\n```"
