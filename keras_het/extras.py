"""Packages that only some functions need, imported when they do."""

import importlib
from typing import Any

PACKAGES = {"sklearn": "scikit-learn", "PIL": "pillow"}  # whose name is not that of the module


def import_extra(name: str, extra: str, user: str) -> Any:
    """A module of an extra of the package.

    Args:
        name: of the module, such as "matplotlib.pyplot".
        extra: that installs it, such as "plot".
        user: what needs it, as a sentence begins, such as "The demo".
    Raises:
        ImportError: that says what to install, if it is missing.

    Example:
        >>> import_extra("json", "plot", "The example").dumps([1])
        '[1]'
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise ImportError(
            f'{user} needs {PACKAGES.get(package, package)}, which is not installed: pip install "keras-het[{extra}]"'
        ) from error
