"""The settings of a run: those of a recipe, with changes, for one method."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from selftaught.errors import UsageError, printable, unknown
from selftaught.learners.registry import find_method, find_owners, has_setting, list_methods
from selftaught.recipes import RECIPES, Settings, parse_value, setting_kinds


def make_settings(recipe: str = "official", **changes: Any) -> Any:
    """The settings of a recipe, with changes, in the class of their method.

    A recipe may name settings that the method does not have: they are left out.

    Example:
        >>> make_settings("paper", epochs=30).reduction
        'samples'
    """
    if recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    method = str(changes.get("method", RECIPES[recipe].get("method", Settings.method)))
    kind = find_method(method).learner.settings_class
    kinds = setting_kinds(kind)
    of_recipe = {name: value for name, value in RECIPES[recipe].items() if name in kinds}
    return change_settings(kind(recipe=recipe, method=method), of_recipe | changes)


def change_settings(start: Settings, changes: Mapping[str, Any]) -> Settings:
    """Settings with changes, each of a name that the method has."""
    for name in changes:
        _check_name(name, start.method)
    return replace(start, **changes)


def parse_settings(assignments: list[str], method: str | None = None) -> dict[str, Any]:
    """Settings of a method from words such as ``sigma=2`` on a command line."""
    words: dict[str, str] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set takes NAME=VALUE, but got {printable(assignment)!r}")
        words[name.strip().replace("-", "_")] = text.strip()
    method = method or words.get("method", Settings.method)
    kinds = setting_kinds(find_method(method).learner.settings_class)
    for name in words:
        _check_name(name, method)
    return {name: parse_value(name, text, kinds[name]) for name, text in words.items()}


def load_settings(saved: Mapping[str, Any]) -> Settings:
    """Settings read back from a run's JSON; settings that the method does not have, as in older runs, are left out."""
    kind = find_method(str(saved.get("method", Settings.method))).learner.settings_class
    return kind(**{name: value for name, value in saved.items() if name in setting_kinds(kind)})


def settings_for(start: Settings, method: str, **changes: Any) -> Settings:
    """The settings of another method for the same run: those that both have stay as they are."""
    kind = find_method(method).learner.settings_class
    kept = {field.name: getattr(start, field.name) for field in fields(start) if field.name in setting_kinds(kind)}
    return kind(**kept | {"method": method} | changes)


def _check_name(name: str, method: str) -> None:
    """Raise an error for a name that is no setting of the method; it says which methods have that setting."""
    if has_setting(method, name) and name != "recipe":
        return
    owners = find_owners(name)
    if owners and name != "recipe":
        raise UsageError(
            f"{name} is a setting of {' and '.join(owners)}, not of {method}: leave it out, or choose another --method"
        )
    known = {setting for info in list_methods().values() for setting in setting_kinds(info.learner.settings_class)}
    raise unknown("setting", name, known - {"recipe"})
