"""Names of the package in running text become links to their page; a name that has none fails a strict build.

Those of `keras_het.ops`, functions of tensors, are not public: they have no page, and stay as they are.
"""

import re

NAME = re.compile(r"<code>(keras_het(?!\.ops\b)(?:\.\w+)+)</code>(?!</a>|</autoref>)")


def with_links(page):
    """The HTML of a page, in which code that is nothing but a name of the package refers to it."""
    return NAME.sub(r'<autoref identifier="\1"><code>\1</code></autoref>', page)
