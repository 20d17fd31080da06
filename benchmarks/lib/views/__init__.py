"""Tables of pages that are made of others: chosen rows and columns, in plain words.

Each takes `of(name, title)`, which returns the table of a result file, and returns a table: rows of strings, the first
its head.
"""

from benchmarks.lib.views import archive, cost, labels, readme, real


def by_name(name):
    """The function of one of the modules that makes a table."""
    return next(getattr(module, name) for module in (labels, real, cost, readme, archive) if hasattr(module, name))
