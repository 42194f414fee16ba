"""Optional dependencies: imported where they are used, and missed with one sentence."""

import importlib
from typing import Any


def require(module: str, extra: str, what: str) -> Any:
    """Import an optional module.

    Arguments:
        module: name to import.
        extra: the extra of attnlab that installs it.
        what: what needs it; begins the sentence.

    Raises:
        ModuleNotFoundError: it is not installed; the message names the extra.

    >>> require("math", "none", "counting").isqrt(9)
    3
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise  # installed, but something of its own is missing
        raise ModuleNotFoundError(
            f"{what} needs {module}, which is not installed: pip install 'attnlab[{extra}]'.", name=module
        ) from None
