"""A page for each public module, and on it every public name."""

from package import find, public_modules, public_names, results_of

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
    """The pages, `{address: Markdown}`, the package's own first."""
    modules = list(public_modules(package))
    homes = {
        find(package, source).path: path for module in modules[1:] for path, source in public_names(module).items()
    }
    return {f"api/{module.path}.md": _page(package, module, homes if module is package else {}) for module in modules}


def _page(package, module, homes):
    """A module's names: links to what has its home elsewhere, then all others in full."""
    names = public_names(module)
    elsewhere = {
        path: homes[target] for path, source in names.items() if (target := find(package, source).path) in homes
    }
    pages = {found.path for found in public_modules(package)}
    links = [
        f"- {_anchor(path, pages)}`{path.rpartition('.')[2]}`: [`{home}`][{home}]" for path, home in elsewhere.items()
    ]
    seen = {find(package, source).path for found in public_modules(package) for source in public_names(found).values()}
    own = []
    for path, source in names.items():
        if path not in elsewhere:
            own.append(f"{_anchor(path, [source])}\n\n::: {source}")
            own += [RESULT.format(path=result) for result in results_of(package, find(package, source), seen)]
    return "\n\n".join([PAGE.format(path=module.path), "\n".join(links), *own])


def _anchor(path, there):
    """A place that links find under a path, unless there is one by itself."""
    return "" if path in there else f"[](){{#{path}}}"
