"""Imports optional packages when a function needs them."""

import importlib
from typing import Any

PACKAGES = {"sklearn": "scikit-learn", "PIL": "pillow"}  # modules whose package has another name


def import_extra(name: str, user: str) -> Any:
    """Imports a module of an optional package; without it, the ImportError names the package to install.

    Example:
        >>> import_extra("json", "The example").dumps([1])
        '[1]'
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = PACKAGES.get(name.split(".")[0], name.split(".")[0])
        raise ImportError(f"{user} needs {package}, which is not installed: pip install {package}") from error
