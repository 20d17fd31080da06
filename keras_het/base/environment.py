"""Loads Keras and its backend before the rest of the package; if that fails, the error names a remedy."""

import difflib
import importlib.util
import os
import re
import sys
from typing import NoReturn

BACKENDS = ("jax", "tensorflow", "torch")
PREDICT_ONLY = ("numpy", "openvino")  # Keras cannot train on them
OLDEST = {"keras": "3.15.1", "numpy": "2.0", "scipy": "1.13", "jax": "0.6", "tensorflow": "2.20", "torch": "2.7"}


def installed_backends() -> list[str]:
    """The backends that can be imported, of the three."""
    return [name for name in BACKENDS if importlib.util.find_spec(name)]


def wrong_backend(name: str | None, installed: list[str]) -> str | None:
    """The fault of a choice of a backend, in words, and a remedy; None if there is no fault.

    Args:
        name: the value of KERAS_BACKEND, None or empty if it is not set.
        installed: the backends that are installed.
    Returns:
        a text, or None if this check finds nothing wrong.
    """
    if name in PREDICT_ONLY:
        needed = "jax" if name == "numpy" else name  # by Keras
        if importlib.util.find_spec(needed):
            return None
        return f"KERAS_BACKEND is {name!r}, for which Keras needs {needed}. Install it: pip install {needed}"
    if name and name not in BACKENDS:
        near = difflib.get_close_matches(name.lower(), BACKENDS + PREDICT_ONLY, 1) or installed or BACKENDS
        return (
            f"KERAS_BACKEND is {name!r}, and must be one of {', '.join(BACKENDS)}, or {' or '.join(PREDICT_ONLY)} for "
            f"predictions alone. Perhaps you mean: export KERAS_BACKEND={near[0]}"
        )
    if not installed:
        wanted = name or "jax"
        return f"No backend is installed. Install one: {install(wanted)}, then: export KERAS_BACKEND={wanted}"
    if name and name not in installed:
        return (
            f"KERAS_BACKEND is {name!r}, which is not installed. Install it: {install(name)}. "
            f"Or take one that is: export KERAS_BACKEND={installed[0]}"
        )
    return None


def install(backend: str) -> str:
    """The command that installs a backend: by its own name, since that works without a release of this package."""
    return f'pip install "{backend}>={OLDEST[backend]}"'


def too_old(name: str, version: str | None) -> str | None:
    """The fault of a package's version, in words, and a remedy; None if it is new enough, or not known."""
    oldest = OLDEST[name]
    if version is None or _release(version) >= _release(oldest):
        return None
    return (
        f"{name} {version} is too old: keras_het needs {oldest} or newer. Upgrade: pip install --upgrade "
        f'"{name}>={oldest}"'
    )


def load_keras() -> None:
    """Imports Keras with its backend.

    Raises:
        ImportError: if that fails or Keras is too old; `python -m keras_het` ends with the same text and exit status 1.
    """
    name, installed = os.environ.get("KERAS_BACKEND"), installed_backends()
    try:
        import keras
    except Exception as error:
        _stop(_plug_in(name, error) or wrong_backend(name, installed) or _failed(name, installed, error), error)
    problem = too_old("keras", getattr(keras, "__version__", None))
    if problem:
        _stop(problem)


def _plug_in(name, error):
    """The fault of a backend that Keras 3.16 looks for in a package of its own; None of any other error.

    Keras calls a package that fails to load not installed.
    """
    package = f"keras-{name}"
    if f"pip install {package}" not in str(error):
        return None
    text = f"KERAS_BACKEND is {name!r}, for which Keras needs the package {package}"
    if importlib.util.find_spec(f"keras_{name}") is None:
        return f"{text}. Install it: pip install {package}"
    cause = error.__cause__
    return f"{text}: it is installed, and failed. {type(cause).__name__}: {cause}. Install what it needs"


def _failed(name, installed, error):
    reason = f"Keras could not be loaded: {type(error).__name__}: {error}."
    if name:
        return f"{reason} Install its backend again: pip install --force-reinstall {name}"
    there = f"these backends are installed: {', '.join(installed)}"
    return f"{reason} KERAS_BACKEND is not set; {there}. Try: export KERAS_BACKEND={installed[0]}"


def _stop(text: str, cause: Exception | None = None) -> NoReturn:
    if sys.argv[:1] == ["-m"]:  # `python -m` is importing the package: a traceback would hide the text
        sys.exit(text)
    raise ImportError(text) from cause


def _release(version):
    """The numbers of a version's release: 2.13.0rc1+cpu is (2, 13, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[a-z+]", version)[0]))


load_keras()
