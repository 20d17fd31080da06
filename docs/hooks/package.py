"""The package as griffe reads it: its public modules, and where what they offer is defined."""

import griffe

NAME = "keras_het"
# Imported only when used, because it needs scikit-learn.
LATE = {f"{NAME}.labels": {f"{NAME}.labels.Classifier": f"{NAME}.labels.classifier.Classifier"}}


def load(root, name=NAME):
    """The package in a folder, without importing it."""
    return griffe.load(name, search_paths=[str(root)], try_relative_path=False, resolve_aliases=True)


def public_modules(package):
    """The package, and the modules that its table of contents lists, and theirs."""
    yield package
    for name in package.exports or ():
        module = package.modules.get(name)
        if module is not None and not _is_shadowed(package, name):
            yield from public_modules(module)


def public_names(module):
    """The functions and classes of a module's table of contents: `{path for users: path for griffe}`.

    They differ where a function has the name of the module that defines it.
    """
    own = [name for name in module.exports or () if name not in module.modules or _is_shadowed(module, name)]
    found = {
        f"{module.path}.{name}": f"{module.path}.{name}.{name}" if name in module.modules else f"{module.path}.{name}"
        for name in own
    }
    return found | LATE.get(module.path, {})


def _is_shadowed(module, name):
    """Whether a module imports a function of the same name from one of its modules, which hides that from users."""
    return module.imports.get(name) == f"{module.path}.{name}.{name}"


def find(package, path):
    """The function or class at a path, where it is defined."""
    found = package[path.removeprefix(f"{package.path}.")]
    return found.final_target if found.is_alias else found


def undocumented(package):
    """The paths of public modules, functions and classes that have no docstring."""
    modules = list(public_modules(package))
    objects = [find(package, path) for module in modules for path in public_names(module).values()]
    return sorted({found.path for found in [*modules, *objects] if not found.has_docstring})


def results_of(package, function, seen):
    """Paths of the classes of the package that a function returns, and of those in their fields, without those seen.

    They have no place of their own in a table of contents: a user meets them as results.
    """
    paths = []
    for name in _names(getattr(function, "returns", None)):
        found = find(package, name) if name.startswith(f"{package.path}.") else None
        if found is not None and found.is_class and found.path not in seen:
            seen.add(found.path)
            fields = [member for member in found.members.values() if member.is_attribute]
            inner = (results_of(package, _Returning(field.annotation), seen) for field in fields)
            paths += [found.path, *(path for part in inner for path in part)]
    return paths


class _Returning:
    """An annotation, in the place of a function that returns it."""

    def __init__(self, returns):
        self.returns = returns


def _names(annotation):
    """The full names in an annotation."""
    if annotation is None or isinstance(annotation, str):
        return []
    return [part.canonical_path for part in annotation.iterate(flat=True) if isinstance(part, griffe.ExprName)]
