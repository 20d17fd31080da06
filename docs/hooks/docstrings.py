"""The sections of the package's docstrings, in the form that griffe's Google style reads."""

import re

import griffe

INLINE = r"Warns|Source|Warm start|Input and output shape|Input shape|Output shape"
SECTION = re.compile(rf"^({INLINE}): (.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
ATTRIBUTES = re.compile(r"^Attributes:(?:\n[ \t]+\S.*)*", re.MULTILINE)
ITEM = re.compile(r"^ {4}(\w+(?:, \w+)+): (.*)", re.MULTILINE)


class Sections(griffe.Extension):
    """Rewrites the docstring of every object before it is parsed."""

    def on_object(self, *, obj, loader, **kwargs):
        """Called by griffe for each object, when all are read."""
        if obj.docstring:
            obj.docstring.value = sections(obj.docstring.value)


def sections(text):
    """A docstring with its short sections as paragraphs, with an attribute a line and the example as code."""
    text = ATTRIBUTES.sub(lambda found: ITEM.sub(_one_a_line, found[0]), text)
    text = SECTION.sub(lambda found: f"\n**{found[1]}:** {' '.join(found[2].split())}\n", text)
    return re.sub(r"^Example:$", "\nExamples:", text, flags=re.MULTILINE)


def _one_a_line(item):
    """Each name of `a, b: text` with the text."""
    return "\n".join(f"    {name}: {item[2]}" for name in item[1].split(", "))
