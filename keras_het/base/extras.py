"""Imports packages that only some functions need, when they need them."""

import importlib
from typing import Any

# Packages whose modules have another name.
PACKAGES = {"sklearn": "scikit-learn", "PIL": "pillow"}


def import_extra(name: str, user: str) -> Any:
    """Imports a module that an extra of the package installs.

    Args:
        name: name of the module, such as "matplotlib.pyplot".
        user: the part of the package that needs it, as the start of a sentence, such as "The demo".
    Raises:
        ImportError: if the module is missing; the error says which package to install.

    Example:
        >>> import_extra("json", "The example").dumps([1])
        '[1]'
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = PACKAGES.get(name.split(".")[0], name.split(".")[0])
        raise ImportError(f"{user} needs {package}, which is not installed: pip install {package}") from error
