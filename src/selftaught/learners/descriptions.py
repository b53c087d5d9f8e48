"""Descriptions of settings: the docstrings below their fields."""

import ast
import inspect
import textwrap
import typing
from contextlib import suppress
from itertools import pairwise
from typing import Any, Literal

from selftaught.recipes import KIND_NAMES, Settings, Within, bare_kind, kind_options


def setting_descriptions(kind: type[Settings]) -> dict[str, str]:
    """The descriptions of a method's settings, except those without a docstring or without source code."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, Settings):
            with suppress(OSError, TypeError, SyntaxError):
                found |= _docstrings(textwrap.dedent(inspect.getsource(base)))
    return found


def describe_values(kind: Any) -> str:
    """The values that a setting of a kind may have, in words.

    Example:
        >>> from typing import Annotated
        >>> describe_values(Annotated[int | None, Within(1, 9)])
        'auto, or a whole number from 1 to 9'
    """
    bare, words = bare_kind(kind), []
    if type(None) in typing.get_args(bare):
        words.append("auto")
    limits = next((limits for limits in getattr(kind, "__metadata__", ()) if isinstance(limits, Within)), None)
    for option in kind_options(bare):
        if typing.get_origin(option) is Literal:
            words.append(", ".join(map(str, typing.get_args(option))))
        elif typing.get_origin(option) is tuple:
            words.append("two numbers, such as 0.16,1")
        else:
            words.append(KIND_NAMES[option] + (f" {_range(limits)}" if limits else ""))
    return ", or ".join(words)


def _range(limits: Within) -> str:
    low = f"above {limits.low:g}" if limits.open else f"from {limits.low:g}"
    return low if limits.high >= Within(0).high else f"{low} to {limits.high:g}"


def _docstrings(source: str) -> dict[str, str]:
    body = typing.cast(ast.ClassDef, ast.parse(source).body[0]).body
    found = {}
    for field, text in pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                found[name] = " ".join(words.split())
    return found
