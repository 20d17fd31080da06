"""The pages of the API: an overview in two halves, and a page for each public module with every public name on it."""

from package import find, public_modules, public_names, results_of
from text import as_it_stands

# What most users need, by what they want to do: names below the package.
FOR_USERS = {
    "Choose": ("labels.choose", "labels.Classifier", "estimate_cost"),
    "Find wrong labels": (
        "labels.find_issues",
        "labels.diagnose",
        "labels.report",
        "labels.next_labels",
        "labels.errors_left",
        "labels.apply_corrections",
        "labels.clean",
    ),
    "Build a model": ("HeteroscedasticDense", "NoiseTransition", "DeepEnsemble"),
    "Convert a pretrained model": ("heteroscedastic", "homoscedastic"),
    "Check a model and its data before training": ("check",),
    "Know how good a model is, from verified labels": ("labels.verify_accuracy",),
    "Compare the backends": ("parity.record", "parity.compare"),
    "See which classes are confused": ("explain.confused_pairs",),
}

OVERVIEW = """---
title: API
---

# API: all names

## For users

What most users need. `import keras_het`, then:

{users}

Commands: `python -m keras_het doctor` checks the installation. `python -m keras_het parity model.keras` compares a
model on the installed backends.

## For researchers

All other names, by module.

{researchers}
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
    """The pages, `{address: Markdown}`, the overview first, then the package's own."""
    modules = list(public_modules(package))
    homes = {
        find(package, source).path: path for module in modules[1:] for path, source in public_names(module).items()
    }
    results = _results(package, modules)
    pages = {
        f"api/{module.path}.md": _page(package, module, homes if module is package else {}, results)
        for module in modules
    }
    return {"api/index.md": overview(package), **pages}


def overview(package):
    """A line for each public name: for users by what they want to do, for researchers by module."""
    sources = {path: source for module in public_modules(package) for path, source in public_names(module).items()}
    wanted = {title: [f"{package.path}.{name}" for name in names] for title, names in FOR_USERS.items()}
    shown = {find(package, sources[path]).path for paths in wanted.values() for path in paths}
    users = [_list(title, {path: path for path in paths}, package, sources) for title, paths in wanted.items()]
    researchers = []
    for module in public_modules(package):
        own = {
            path: path.rpartition(".")[2]
            for path, source in public_names(module).items()
            if find(package, source).path not in shown
        }
        shown |= {find(package, sources[path]).path for path in own}
        researchers += [_list(f"[`{module.path}`]({module.path}.md)", own, package, sources)] if own else []
    return OVERVIEW.format(users="\n\n".join(users), researchers="\n\n".join(researchers))


def _list(title, names, package, sources):
    """A heading, and a line for each name, `{path: name as it is shown}`."""
    lines = [f"- [`{name}`][{path}]: {_first_line(find(package, sources[path]))}" for path, name in names.items()]
    return "\n".join([f"### {title}", "", *lines])


def _first_line(found):
    """The first paragraph of a docstring."""
    return as_it_stands(found.docstring.value.split("\n\n")[0].replace("\n", " "))


def _results(package, modules):
    """The classes that functions return, by the module on whose page they are: `{module: {function: paths}}`.

    That is the module which defines the class, if its page has a function that returns it, else the first page with
    one.
    """
    public = {find(package, source).path for module in modules for source in public_names(module).values()}
    pages = [module.path for module in modules[1:]]
    found, seen = {}, set(public)
    for module in modules[1:] + modules[:1]:
        for path, source in public_names(module).items():
            known = set(public)
            inner = results_of(package, find(package, source), known)
            own = [result for result in inner if result not in seen and _home(result, pages) in ("", module.path)]
            seen.update(own)
            found[module.path, path] = own
    return found


def _home(result, pages):
    """The longest path of a public module that defines a class, or "" if no public one does."""
    return max((path for path in pages if result.startswith(f"{path}.")), key=len, default="")


def _page(package, module, homes, results):
    """A module's names: links to what has its home elsewhere, then all others in full."""
    names = public_names(module)
    elsewhere = {
        path: homes[target] for path, source in names.items() if (target := find(package, source).path) in homes
    }
    pages = {found.path for found in public_modules(package)}
    links = [
        f"- {_anchor(path, pages)}`{path.rpartition('.')[2]}`: [`{home}`][{home}]" for path, home in elsewhere.items()
    ]
    own = []
    for path, source in names.items():
        if path not in elsewhere:
            own.append(f"{_anchor(path, [source])}\n\n::: {source}")
            own += [RESULT.format(path=result) for result in results[module.path, path]]
    return "\n\n".join([PAGE.format(path=module.path), "\n".join(links), *own])


def _anchor(path, there):
    """A place that links find under a path, unless there is one by itself."""
    return "" if path in there else f"[](){{#{path}}}"
