"""Which function computes which equation: read from docstrings, from `Source:` and from citations behind formulas."""

import re
from collections import defaultdict
from typing import NamedTuple

from package import find, public_modules, public_names
from text import as_it_stands

CITED = re.compile(r"\(([A-Z](?:[^()]|\([^()]*\))*(?:19|20)\d\d(?:[^()]|\([^()]*\))*)\)")  # (Reed et al. 2014, Eq. 6)
SOURCE = re.compile(r"^Source:\s*(.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
NUMBERS = r"\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*"
PLACE = rf"(?:Eqs?\.|Algorithm|Definition|Figure|[Ss]ections?|Table|Theorem) {NUMBERS}|Appendix [A-Z]"
WORK = re.compile(r"(?P<first>[A-Z][\w-]+)[^;]*?(?P<year>(?:19|20)\d\d)")


class Citation(NamedTuple):
    """A work, a place in it, the words of the docstring, and the object whose docstring it is."""

    work: str
    place: str
    text: str
    object: object


def equations_page(package, template):
    """The page: the template, a table for each work that is cited with a place in it, and one of all other sources."""
    public = {
        find(package, source).path: path
        for module in public_modules(package)
        for path, source in public_names(module).items()
    }
    works = defaultdict(list)
    for citation in citations(package):
        works[citation.work if citation.place else "Other sources"].append(citation)
    order = sorted(works, key=lambda work: (work == "Other sources", -len(works[work]), work))
    tables = [f"## {work}\n\n{_table(works[work], public)}" for work in order]
    return "\n\n".join([template, *tables]) + "\n"


def citations(package):
    """All citations in the docstrings of a package."""
    for owner in _objects(package):
        text = owner.docstring.value if owner.docstring else ""
        sources = " ".join(" ".join(SOURCE.findall(text)).split())
        for cited in dict.fromkeys([*CITED.findall(SOURCE.sub("", text)), *filter(None, sources.split("; "))]):
            yield from _citations(" ".join(cited.split()), owner)


def _citations(text, owner):
    work = WORK.search(text)
    places = re.findall(PLACE, text) or [""]
    for place in places if work else [""]:
        yield Citation(f"{work['first']} {work['year']}" if work else "", place, text, owner)


def _objects(module):
    """A module, and the classes, functions and modules that it defines."""
    yield module
    for member in module.members.values():
        if not member.is_alias and (member.is_module or member.is_class or member.is_function):
            yield from _objects(member)


def _table(found, public):
    order = sorted(found, key=lambda c: (not c.place.startswith("Eq"), not c.work, _natural(c.place), _natural(c.text)))
    rows = [f"| {c.place} | {_link(c.object, public)} | {_cell(c.text)} |" for c in order]
    return "\n".join(["| Where | Function | As its docstring says |", "|---|---|---|", *dict.fromkeys(rows)])


def _link(found, public):
    """The nearest public name of an object, as a link, and its own name where that is none; else its file."""
    owner = found
    while owner.path not in public and owner.parent is not None:
        owner = owner.parent
    if owner.path not in public:
        return f"`{found.path.partition('.')[2]}`"
    return f"[`{public[owner.path]}{found.path.removeprefix(owner.path)}`][{public[owner.path]}]"


def _natural(text):
    """A key that sorts Eq. 5 before Eq. 13."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", text)]


def _cell(text):
    """Text as it stands, in a table."""
    return as_it_stands(text.replace("|", "\\|"))
