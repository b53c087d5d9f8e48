"""Backbones that a user's function builds, named by where it is imported from: ``package.module:function``."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from torch import nn

from selftaught.errors import UsageError, one_line, printable
from selftaught.networks.model import Encoder
from selftaught.networks.preprocessing import Preprocessing

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_factory(name: str) -> bool:
    """Whether a backbone's name names a function to import."""
    return NAME.fullmatch(name) is not None


def call_factory(name: str) -> tuple[nn.Module, Preprocessing]:
    """The result of the function: a module from normalized images to a feature map or vector, and its preprocessing.

    The function is looked for in installed packages first, then in the working directory.
    """
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        advice = ": install what is missing, or run this in the folder that holds it"
        factory = _try(f"{module} cannot be imported", name, lambda: importlib.import_module(module), advice)
        factory = getattr(factory, function, None)
        if not callable(factory):
            what = "has no such function" if factory is None else f"has {function}, which is no function"
            raise UsageError(f"the backbone {name!r} cannot be built: {module} {what}")
        built = _try(f"{function}() failed", name, factory)
    finally:
        sys.path.remove(here)
    backbone, inputs = built if isinstance(built, tuple) and len(built) == 2 else (built, Preprocessing())
    if not isinstance(backbone, nn.Module) or not isinstance(inputs, Preprocessing):
        raise UsageError(
            f"the backbone {name!r} cannot be built: {function}() must return a torch.nn.Module, or one and a "
            f"selftaught.networks.Preprocessing, not {printable(repr(built))[:100]}"
        )
    _try("what it returns does not fit", name, lambda: Encoder(backbone, inputs))
    return backbone, inputs


def _try(problem: str, name: str, work: Any, advice: str = "") -> Any:
    try:
        return work()
    except Exception as error:  # a user's code may raise anything
        reason = one_line(f"{type(error).__name__}: {error}")
        raise UsageError(f"the backbone {name!r} cannot be built: {problem} ({printable(reason)}){advice}") from None
