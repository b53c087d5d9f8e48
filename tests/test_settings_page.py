"""docs/settings.md describes every setting and every signal, as they are."""

import json
from pathlib import Path

import pytest
from settings_page import loss_parts, make_page, setting_descriptions

from selftaught.learners import METHODS
from selftaught.recipes import setting_kinds
from selftaught.training import SIGNALS

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
KNOWN = {name.strip() for columns in SIGNALS.values() for names in columns for name in names.split(",")}


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_has_a_description(method: str) -> None:
    kind = METHODS[method].learner.settings_class
    missing = setting_kinds(kind).keys() - setting_descriptions(kind).keys()
    assert not missing, f"a docstring below each of these fields must say what it is: {missing}"


def test_every_part_of_a_loss_has_a_description() -> None:
    told = loss_parts()
    for method in METHODS.values():
        assert all(f'"{name}": ' in told[method.title] for name in method.learner.loss_names[1:])


def test_every_number_that_a_run_writes_has_a_description(run: Path) -> None:
    written: set[str] = set()
    for file in ("metrics.jsonl", "timing.jsonl", "start.json"):
        written |= {name for line in (run / file).read_text().splitlines() for name in json.loads(line)}
    assert {"loss", "effective_rank", "recall@8", "images_per_second"} <= written
    written -= set(METHODS["stml"].learner.loss_names[1:])
    assert written <= KNOWN, f"SIGNALS in training/logbook.py must say what these are: {written - KNOWN}"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == make_page(), "run: python docs/settings_page.py > docs/settings.md"


def test_the_page_has_every_setting_and_signal() -> None:
    page = PAGE.read_text("utf-8")
    for method in METHODS.values():
        for name in setting_kinds(method.learner.settings_class):
            assert f"\n| `{name}` |" in page
    for columns in SIGNALS.values():
        for name in columns:
            assert f"\n| {name} |" in page
