"""The error of a name that a package does not have, which says where it, or one like it, is."""

import difflib
from types import ModuleType


def missing_name(package: ModuleType, name: str) -> AttributeError:
    """The error for a name that is not in a package.

    It names the public places of the name in the modules of the package, or else of the names most like it. Names are
    compared without their case, and also by what they begin or end with: "issues" is like "find_issues".

    Args:
        package: package with a table of contents `__all__` of names and of modules that have one, or a `__dir__` that
            lists more.
        name: name that was asked for.
    Example:
        >>> import keras_het
        >>> print(missing_name(keras_het, "MonteCarlo"))
        module 'keras_het' has no attribute 'MonteCarlo'. There is keras_het.integrators.MonteCarlo
    """
    places = {} if name.startswith("_") else _places(package)
    found = places.get(name) or [min(places[like], key=len) for like in _like(name, places)]
    hint = f". There is {', '.join(found)}" if found else ""
    return AttributeError(f"module {package.__name__!r} has no attribute {name!r}{hint}")


def _places(package: ModuleType) -> dict[str, list[str]]:
    """Where each public name is, `{"MonteCarlo": ["keras_het.integrators.MonteCarlo"]}`; modules are names, too."""
    found: dict[str, list[str]] = {}
    for name in vars(package).get("__dir__", lambda: package.__all__)():
        part = vars(package).get(name)  # not `getattr`, which would import what is imported late
        found.setdefault(name, []).append(f"{package.__name__}.{name}")
        if isinstance(part, ModuleType) and hasattr(part, "__all__"):
            for inner, places in _places(part).items():
                found.setdefault(inner, []).extend(places)
    return found


def _like(name: str, names: dict[str, list[str]]) -> list[str]:
    """At most three of some names that are like another."""
    lower = {known.lower(): known for known in names}
    word = name.lower()
    parts = [known for known in lower if len(word) > 4 and (known.startswith(word) or known.endswith(word))]
    return [lower[known] for known in (parts or difflib.get_close_matches(word, lower, cutoff=0.75))[:3]]
