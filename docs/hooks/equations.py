"""Reads from the docstrings which function computes which equation of which paper."""

import re
from typing import NamedTuple

from package import find, public_modules, public_names

CITED = re.compile(r"\(([A-Z](?:[^()]|\([^()]*\))*(?:19|20)\d\d(?:[^()]|\([^()]*\))*)\)")  # (Reed et al. 2014, Eq. 6)
SOURCE = re.compile(r"^Source:\s*(.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
NUMBERS = r"\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*"
PLACE = re.compile(rf"(?:Eqs?\.|Algorithm|Definition|Figure|[Ss]ections?|Table|Theorem) {NUMBERS}|Appendix [A-Z]")
WORK = re.compile(r"(?P<first>[A-Z][\w-]+)[^;]*?(?P<year>(?:19|20)\d\d)")


class Citation(NamedTuple):
    """A paper, an equation or another place in it, and the object whose docstring cites it."""

    work: str
    place: str
    object: object


def equations_table(package):
    """Returns a Markdown table of all citations, the papers in alphabetical order."""
    public = {
        find(package, source).path: path
        for module in public_modules(package)
        for path, source in public_names(module).items()
    }
    functions = {}
    for work, place, owner in citations(package):
        functions.setdefault((work, place), {})[_link(owner, public)] = True
    order = sorted(functions, key=lambda key: (key[0], not key[1].startswith("Eq"), _natural(key[1])))
    rows = [f"| {work} | {place} | {', '.join(functions[work, place])} |" for work, place in order]
    return "\n".join(["| Paper | Equation | Functions |", "|---|---|---|", *rows])


def citations(package):
    """Yields the citations of an equation, a section or the like in the docstrings of a package."""
    for owner in _objects(package):
        text = owner.docstring.value if owner.docstring else ""
        sources = " ".join(" ".join(SOURCE.findall(text)).split()).split("; ")
        for cited in dict.fromkeys([*CITED.findall(SOURCE.sub("", text)), *sources]):
            work = WORK.search(" ".join(cited.split()))
            for place in PLACE.findall(" ".join(cited.split())) if work else ():
                yield Citation(f"{work['first']} {work['year']}", place, owner)


def _objects(module):
    """Yields a module, and the classes, functions and modules that it defines."""
    yield module
    for member in module.members.values():
        if not member.is_alias and (member.is_module or member.is_class or member.is_function):
            yield from _objects(member)


def _link(owner, public):
    """Returns a link to the public name that an object belongs to, or the path of a private one."""
    home = owner
    while home.path not in public and home.parent is not None:
        home = home.parent
    if home.path not in public:
        return f"`{owner.path.partition('.')[2]}`"
    return f"[`{public[home.path]}{owner.path.removeprefix(home.path)}`][{public[home.path]}]"


def _natural(text):
    """Returns a key that sorts Eq. 5 before Eq. 13."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", text)]
