"""The sections of the package's docstrings, in the form that griffe's Google style reads."""

import re

import griffe

INLINE = r"Returns|Raises|Warns|Source|Warm start|Input and output shape|Input shape|Output shape|Input"
SECTION = re.compile(rf"^({INLINE}): (.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
NEXT = re.compile(rf"    +(?=(?:{INLINE}): )")  # a second section on one line
ARGUMENTS = re.compile(r"^(Args|Attributes):(?: (.+))?((?:\n[ \t]+\S.*)*)", re.MULTILINE)
ITEM = re.compile(r"^ {4}([\w*]+(?:, [\w*]+)*): ")


class Sections(griffe.Extension):
    """Rewrites the docstring of every object before it is parsed."""

    def on_object(self, *, obj, loader, **kwargs):
        """Called by griffe for each object, when all are read."""
        if obj.docstring:
            obj.docstring.value = sections(obj.docstring.value)


def sections(text):
    """A docstring whose short sections are paragraphs of their own, with an argument a line and its example as code."""
    text = "\n".join(NEXT.sub("\n", line) for line in text.split("\n"))
    text = ARGUMENTS.sub(_arguments, text)
    text = SECTION.sub(lambda found: f"\n**{found[1]}:** {_joined(found[2])}\n", text)
    return re.sub(r"^Example:$", "\nExamples:", text, flags=re.MULTILINE)


def _joined(text):
    return " ".join(text.split())


def _arguments(found):
    """`Args: as X.` is a paragraph; of `a: text.    b, c: text` each name has a line."""
    head, first, rest = found.groups()
    if first and not ITEM.match(f"    {first}"):
        return f"\n**{'Arguments' if head == 'Args' else head}:** {_joined(first + rest)}\n"
    lines = ([f"    {first}"] if first else []) + rest.split("\n")[1:]
    return "\n".join([f"{head}:", *(item for line in lines for item in _items(line))])


def _items(line):
    for part in re.split(r"(?<=\S) {4,}(?=[\w*]+(?:, [\w*]+)*: )", line):
        part = part if part is line or part.startswith(" ") else f"    {part}"
        names = ITEM.match(part)
        yield from (f"    {name}: {part[names.end() :]}" for name in names[1].split(", ")) if names else [part]
