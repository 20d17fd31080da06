"""Text of docstrings in pages of Markdown."""

import re


def as_it_stands(text):
    """Markdown of a text: what is no code is escaped."""
    parts = text.split("`")
    return "`".join(part if number % 2 else re.sub(r"([_*\[\]])", r"\\\1", part) for number, part in enumerate(parts))
