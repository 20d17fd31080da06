"""Formulas become MathML when the site is built: a browser shows them without a script or a font of another site."""

import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def with_mathml(page):
    """The HTML of a page, its formulas in MathML; a block scrolls by itself where the screen is narrow."""
    return FORMULA.sub(_mathml, page)


def _mathml(found):
    tag, bracket, latex = found.groups()
    latex = html.unescape(latex).strip()
    formula = convert(latex, display="block" if bracket == "[" else "inline")
    if "\\" in formula:  # what the converter does not know it leaves as it is
        raise PluginError(f"A formula with a command that is not known: {latex}")
    return f'<{tag} class="formula">{formula}</{tag}>'
