"""Changes the HTML of a page: formulas become MathML, and names of the package become links."""

import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
NAME = re.compile(r"<code>(keras_het(?!\.ops\.\w+\.)(?:\.\w+)+)</code>(?!</a>|</autoref>)")


def with_mathml(page):
    """Returns the HTML of a page with its formulas in MathML, which a browser shows without a script or a font."""
    return FORMULA.sub(_mathml, page)


def _mathml(match):
    tag, bracket, latex = match.groups()
    latex = html.unescape(latex).strip()
    formula = convert(latex, display="block" if bracket == "[" else "inline")
    if "\\" in formula:  # the converter leaves an unknown command unchanged
        raise PluginError(f"Unknown command in a formula: {latex}")
    return f'<{tag} class="formula">{formula}</{tag}>'


def with_links(page):
    """Returns the HTML of a page in which each name of the package links to its place in the API.

    A name without a place fails a strict build. Names in the modules of `keras_het.ops` are not public and stay
    unlinked.
    """
    return NAME.sub(r'<autoref identifier="\1"><code>\1</code></autoref>', page)
