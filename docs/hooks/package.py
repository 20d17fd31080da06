"""Reads the package with griffe, without importing it: its public modules, their names, and where these are defined."""

import griffe

NAME = "keras_het"


def load(root, name=NAME):
    """Returns the package in a folder."""
    return griffe.load(name, search_paths=[str(root)], try_relative_path=False, resolve_aliases=True)


def public_modules(package):
    """Yields the package and the modules in its `__all__`, then the modules in theirs."""
    yield package
    for name in package.exports or ():
        module = package.modules.get(name)
        if module is not None and not _is_hidden(package, name):
            yield from public_modules(module)


def public_names(module):
    """Returns the functions and classes in the `__all__` of a module: `{path for users: path for griffe}`.

    The paths differ if a function has the name of the module that defines it.
    """
    names = {}
    for name in module.exports or ():
        if name not in module.modules:
            names[f"{module.path}.{name}"] = f"{module.path}.{name}"
        elif _is_hidden(module, name):
            names[f"{module.path}.{name}"] = f"{module.path}.{name}.{name}"
    return names


def _is_hidden(module, name):
    """Returns whether a function that a module imports hides the inner module of the same name."""
    return module.imports.get(name) == f"{module.path}.{name}.{name}"


def find(package, path):
    """Returns the function or class at a path, as it is defined."""
    member = package[path.removeprefix(f"{package.path}.")]
    return member.final_target if member.is_alias else member


def undocumented(package):
    """Returns the paths of public modules, functions and classes without a docstring."""
    modules = list(public_modules(package))
    objects = [find(package, path) for module in modules for path in public_names(module).values()]
    return sorted({member.path for member in [*modules, *objects] if not member.has_docstring})


def result_classes(package, annotation, seen):
    """Returns the paths of the package's classes in an annotation and in their fields, and adds them to `seen`."""
    paths = []
    for part in annotation.iterate(flat=True) if isinstance(annotation, griffe.Expr) else ():
        name = part.canonical_path if isinstance(part, griffe.ExprName) else ""
        result = find(package, name) if name.startswith(f"{package.path}.") else None
        if result is not None and result.is_class and result.path not in seen:
            seen.add(result.path)
            paths.append(result.path)
            for field in result.members.values():
                paths += result_classes(package, field.annotation, seen) if field.is_attribute else []
    return paths
