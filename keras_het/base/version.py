"""The version of the package, and the refusal of what another version wrote."""

import inspect
from typing import Any

__version__ = "0.1.0"


def check_format(kind: type, config: dict[str, Any]) -> None:
    """Raises ValueError for a config with arguments that a class does not take.

    Args:
        kind: the class that is to be made.
        config: config of a file or of `get_config`.
    """
    makers = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    known = {name for maker in makers for name in inspect.signature(maker).parameters}
    if foreign := sorted(set(config) - known):
        rule = f"be of the format of keras_het {__version__}: make the model anew, or load it with the version that"
        raise ValueError(
            f"The config of {kind.__name__} must {rule} saved it. Received: the arguments {', '.join(foreign)}"
        )
