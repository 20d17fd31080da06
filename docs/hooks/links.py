"""Names of the package in running text become links to their page; a name that has none fails a strict build."""

import re

NAME = re.compile(r"<code>(keras_het(?:\.\w+)+)</code>(?!</a>|</autoref>)")


def with_links(page):
    """The HTML of a page, in which code that is nothing but a name of the package refers to it."""
    return NAME.sub(r'<autoref identifier="\1"><code>\1</code></autoref>', page)
