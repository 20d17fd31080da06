"""The package as griffe reads it: its public modules, and where what they offer is defined."""

import griffe

NAME = "keras_het"
# It is imported when asked for.
LATE = {NAME: {f"{NAME}.HeteroscedasticClassifier": f"{NAME}.estimator.classifier.HeteroscedasticClassifier"}}


def load(root, name=NAME):
    """The package in a folder, without importing it."""
    return griffe.load(name, search_paths=[str(root)], try_relative_path=False, resolve_aliases=True)


def public_modules(package):
    """The package, and the modules that its table of contents lists, and theirs."""
    yield package
    for name in package.exports or ():
        module = package.modules.get(name)
        if module is not None and (module.is_subpackage or not _is_shadowed(package, name)):
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
    return name in module.modules[name].members


def find(package, path):
    """The function or class at a path, where it is defined."""
    found = package[path.removeprefix(f"{package.path}.")]
    return found.final_target if found.is_alias else found


def undocumented(package):
    """The paths of public modules, functions and classes that have no docstring."""
    modules = list(public_modules(package))
    objects = [find(package, path) for module in modules for path in public_names(module).values()]
    return sorted({found.path for found in [*modules, *objects] if not found.has_docstring})
