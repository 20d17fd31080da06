"""Loads Keras and its backend before the rest of the package, with an error that names a remedy."""

import importlib.util
import os
import re
import sys
from typing import NoReturn

BACKENDS = ("jax", "tensorflow", "torch")
MIN_VERSIONS = {"keras": "3.15.1", "numpy": "2.0", "scipy": "1.13", "jax": "0.6", "tensorflow": "2.20", "torch": "2.7"}


def installed_backends() -> list[str]:
    """Returns the names of the installed backends."""
    return [name for name in BACKENDS if importlib.util.find_spec(name)]


def backend_error(name: str | None, installed: list[str], error: Exception) -> str:
    """Returns the error message for a Keras that cannot be imported: the reason and a remedy."""
    if not installed:
        backend = name if name in BACKENDS else "jax"
        return f"No backend is installed. Install one: {install_command(backend)}, then: export KERAS_BACKEND={backend}"
    other = f"export KERAS_BACKEND={installed[0]}"
    if name in BACKENDS and name not in installed:
        return (
            f"KERAS_BACKEND is {name!r}, which is not installed. Install it: {install_command(name)}. "
            f"Or use an installed one: {other}"
        )
    reason = f"Keras could not be loaded: {type(error).__name__}: {error}."
    if name in installed:
        return f"{reason} {backend_remedy(name)}"
    setting = repr(name) if name else "not set"
    return f"{reason} KERAS_BACKEND is {setting}. These backends are installed: {', '.join(installed)}. Try: {other}"


def install_command(backend: str) -> str:
    """Returns the command that installs a backend by its own name, because this package might have no release."""
    return f'pip install "{backend}>={MIN_VERSIONS[backend]}"'


def backend_remedy(backend: str) -> str:
    """Returns the advice to reinstall a backend, with the command."""
    return f"Reinstall the backend: pip install --force-reinstall {backend}"


def version_error(name: str, version: str | None) -> str | None:
    """Returns the error message for a package that is too old; None if its version is new enough or unknown."""
    oldest = MIN_VERSIONS[name]
    if version is None or _release(version) >= _release(oldest):
        return None
    return (
        f"{name} {version} is too old: keras_het needs {oldest} or newer. Upgrade: pip install --upgrade "
        f'"{name}>={oldest}"'
    )


def load_keras() -> None:
    """Imports Keras with its backend; else raises ImportError, or exits `python -m keras_het` with the same text."""
    name, installed = os.environ.get("KERAS_BACKEND"), installed_backends()
    try:
        import keras
    except Exception as error:
        _stop(backend_error(name, installed, error), error)
    problem = version_error("keras", getattr(keras, "__version__", None))
    if problem:
        _stop(problem)


def _stop(text: str, cause: Exception | None = None) -> NoReturn:
    if sys.argv[:1] == ["-m"]:  # `python -m` imports the package: a traceback would hide the text
        sys.exit(text)
    raise ImportError(text) from cause


def _release(version):
    """Returns the release of a version: (2, 13, 0) for 2.13.0rc1+cpu."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[a-z+]", version)[0]))


load_keras()
