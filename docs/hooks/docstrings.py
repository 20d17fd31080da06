"""Rewrites the sections of the package's docstrings for griffe, which reads the Google style."""

import re

import griffe

INLINE = r"Raises|Returns|Warns|Source|Warm start|Input and output shape|Input shape|Output shape"
SECTION = re.compile(rf"^({INLINE}): (.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
ATTRIBUTES = re.compile(r"^Attributes:(?:\n[ \t]+\S.*)*", re.MULTILINE)
ITEM = re.compile(r"^ {4}(\w+(?:, \w+)+): (.*)", re.MULTILINE)


class Sections(griffe.Extension):
    """Rewrites the docstring of every object before it is parsed."""

    def on_object(self, *, obj, loader, **kwargs):
        """Changes one docstring. Griffe calls this for each object after it has read all."""
        if obj.docstring:
            obj.docstring.value = sections(obj.docstring.value)


def sections(text):
    """Returns a docstring with its short sections as paragraphs, one attribute per line and the example as code."""
    text = ATTRIBUTES.sub(lambda match: ITEM.sub(_split_names, match[0]), text)
    text = SECTION.sub(lambda match: f"\n**{match[1]}:** {' '.join(match[2].split())}\n", text)
    return re.sub(r"^Example:$", "\nExamples:", text, flags=re.MULTILINE)


def _split_names(item):
    """Returns a line for each name of `a, b: text`."""
    return "\n".join(f"    {name}: {item[2]}" for name in item[1].split(", "))
