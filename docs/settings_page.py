"""docs/settings.md: every setting and every signal. ``python docs/settings_page.py > docs/settings.md``."""

import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from typing import Any, Literal

from selftaught.learners import METHODS
from selftaught.recipes import KIND_NAMES, RECIPES, Settings, Within, bare_kind, kind_options, setting_kinds
from selftaught.training import SIGNALS

HEAD = """# Settings and signals

Give a setting as `--set NAME=VALUE`, or in Python as `train(…, NAME=value)`; `selftaught train` has options for many.
The defaults below are those of `official`; **`selftaught train` uses `best`**, which [changes some](#recipes). "auto",
in Python `None` except where it is among the values: the run chooses, and says what and why. `settings.json` of a run
holds them: `settings` as used, `asked` those left open or asked for otherwise, `reasons` why they were chosen.

This page is made from the docstrings of the settings: `python docs/settings_page.py > docs/settings.md`."""


def make_page() -> str:
    """The page, from the current settings and signals."""
    parts = [HEAD, "## Of every method", _settings_table(Settings, setting_kinds(Settings))]
    for methods, kind, names in _own_settings():
        parts += [f"## Of {methods}", _settings_table(kind, names)]
    recipes = [
        (name, ", ".join(f"{key} {_value(value)}" for key, value in changes.items()) or "nothing")
        for name, changes in RECIPES.items()
    ]
    parts += ["## Recipes", "What each changes in the defaults above:", _table(("recipe", "changes"), recipes)]
    parts.append("## Signals")
    for file, columns in SIGNALS.items():
        parts += [f"In {_code(file)}:", _table(("name", "what it is"), columns.items())]
    parts += ["Beside `loss`, its parts, where it has some:", _table(("method", "parts"), loss_parts().items())]
    return "\n\n".join(parts) + "\n"


def loss_parts() -> dict[str, str]:
    """The parts of the loss of each method that has some, in words, by the method's title."""
    learners = {method.title: method.learner for method in METHODS.values() if len(method.learner.loss_names) > 1}
    return {title: _docstrings(inspect.getsource(learner))["loss_names"] for title, learner in learners.items()}


def _own_settings() -> Iterable[tuple[str, type[Settings], dict[str, Any]]]:
    """The settings that only some methods have, under the names of these methods."""
    shared = setting_descriptions(Settings)
    told: dict[Any, tuple[type[Settings], dict[str, Any], list[str]]] = {}
    for name, method in METHODS.items():
        kind = method.learner.settings_class
        words, kinds = setting_descriptions(kind), setting_kinds(kind)
        own = tuple(key for key in kinds if words.get(key) != shared.get(key))
        if own:
            about = tuple((key, words.get(key), getattr(kind, key)) for key in own)
            told.setdefault(about, (kind, {key: kinds[key] for key in own}, []))[2].append(name)
    return [(", ".join(names), kind, kinds) for kind, kinds, names in told.values()]


def _settings_table(kind: type[Settings], kinds: Mapping[str, Any]) -> str:
    words = setting_descriptions(kind)
    defaults = {field.name: field.default for field in fields(kind)}
    rows = [(f"`{name}`", describe_values(type_), _value(defaults[name]), words[name]) for name, type_ in kinds.items()]
    return _table(("name", "values", "default", "what it is"), rows)


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
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = " ".join(words.split())
    return found


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(_markdown(cell) for cell in line)} |" for line in lines)


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_value, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "auto" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _markdown(text: str) -> str:
    """A docstring's text as Markdown, within a table."""
    return re.sub(r"(:\w+:)?``?([^`]+)``?", r"`\2`", text).replace("|", "\\|")


def _code(text: str) -> str:
    return re.sub(r"\w+\.jsonl?", lambda found: f"`{found[0]}`", text)


if __name__ == "__main__":
    print(make_page(), end="")
