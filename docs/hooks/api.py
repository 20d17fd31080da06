"""Makes the pages of the API: an overview, and a page of each public module with its names in full."""

import re

from package import find, public_modules, public_names, result_classes

OVERVIEW = """---
title: All names
---

# All names

The public names of keras_het, by module. In a shell, `python -m keras_het doctor` checks your installation, and
`python -m keras_het parity model.keras` compares your model on the installed backends.

{modules}
"""

PAGE = """---
title: {path}
search:
  boost: 0.5
---

::: {path}
    options:
      heading_level: 1
      members: false
      show_root_full_path: true
"""

RESULT = """::: {path}
    options:
      heading_level: 3
"""


def api_pages(package):
    """Returns the pages, `{address: Markdown}`, the overview first, then the page of the package."""
    modules = list(public_modules(package))
    paths = {
        find(package, source).path: path for module in modules[1:] for path, source in public_names(module).items()
    }
    seen, pages = set(paths), {}
    for module in [*modules[1:], package]:
        homes = paths if module is package else {}
        pages[f"api/{module.path}.md"] = _page(package, module, homes, seen)
    return {"api/index.md": overview(package), f"api/{package.path}.md": pages.pop(f"api/{package.path}.md"), **pages}


def overview(package):
    """Returns a line for each public name, by module."""
    parts = []
    for module in public_modules(package):
        names = public_names(module).items()
        lines = [
            f"- [`{path.rpartition('.')[2]}`][{path}]: {_first_line(find(package, source))}" for path, source in names
        ]
        parts += [f"## [`{module.path}`]({module.path}.md)\n", *lines, ""]
    return OVERVIEW.format(modules="\n".join(parts))


def _first_line(member):
    """Returns the first paragraph of a docstring as Markdown, with everything outside code escaped."""
    parts = member.docstring.value.split("\n\n")[0].replace("\n", " ").split("`")
    return "`".join(part if index % 2 else re.sub(r"([_*\[\]])", r"\\\1", part) for index, part in enumerate(parts))


def _page(package, module, homes, seen):
    """Returns the page of a module: links to names that have another home, then its own names with their results.

    A class that functions return is no public name. Its place is below the first function that returns it.
    """
    links, parts = [], []
    for path, source in public_names(module).items():
        member = find(package, source)
        if member.path in homes:
            home = homes[member.path]
            links.append(f"- [](){{#{path}}}`{path.rpartition('.')[2]}`: [`{home}`][{home}]")
            continue
        anchor = "" if path == source else f"[](){{#{path}}}\n\n"
        results = result_classes(package, getattr(member, "returns", None), seen)
        parts += [f"{anchor}::: {source}", *(RESULT.format(path=result) for result in results)]
    return "\n\n".join([PAGE.format(path=module.path), "\n".join(links), *parts])
