from dataclasses import asdict
from typing import Any

import pytest

from selftaught.errors import UsageError
from selftaught.learners import load_settings, make_settings, parse_settings
from selftaught.recipes import RECIPES, Settings


def test_official_is_what_the_authors_ran() -> None:
    s = make_settings()
    assert (s.sigma, s.delta, s.neighbors, s.momentum, s.lr, s.epochs) == (3.0, 1.0, 5, 0.999, 1e-4, 90)
    assert (s.reduction, s.include_self, s.group_views, s.teacher_update) == ("pairs", True, True, "before_step")


def test_paper_differs_from_official_in_the_documented_points_only() -> None:
    official, paper = asdict(make_settings("official")), asdict(make_settings("paper"))
    different = {name for name in official if official[name] != paper[name]}
    assert different == {"recipe", "reduction", "include_self", "group_views", "teacher_update"}


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_survives_being_saved(name: str) -> None:
    assert load_settings(asdict(make_settings(name))) == make_settings(name)


def test_unknown_names_get_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'official'"):
        make_settings("offical")
    with pytest.raises(UsageError, match="did you mean 'neighbors'"):
        make_settings(neighbours=3)
    with pytest.raises(UsageError, match="did you mean 'cosine'"):
        make_settings(schedule="cosin")
    with pytest.raises(UsageError, match="did you mean 'sigma'"):
        parse_settings(["sigm=2"])


def test_settings_from_a_command_line_have_the_right_type() -> None:
    words = ["sigma=2", "dim=64", "distill=no", "crop-scale=0.3,1", "batch_size=auto", "batches=random"]
    changes = parse_settings(words)
    assert changes == {
        "sigma": 2.0,
        "dim": 64,
        "distill": False,
        "crop_scale": (0.3, 1.0),
        "batch_size": None,
        "batches": "random",
    }
    assert make_settings(**changes).dim == 64


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": -1},
        {"dim": 0},
        {"lr": 0.0},
        {"lr": "fast"},
        {"dim": 2.5},
        {"seed": True},
        {"momentum": 1.1},
        {"crop_scale": (0.5, 0.2)},
        {"crop_scale": 0.3},
        {"color": -0.1},
        {"seed": 2**64},
        {"neighbors": 5, "batch_size": 12},
        {"neighbors": 8, "batch_size": 8},
        {"workers": -1},
        {"dim": 10**20},
        {"dim": 2**16 + 1},
        {"teacher_dim": 10**20},
        {"method": "moco", "queue": 10**20},
        {"lr": 1e300},
        {"weight_decay": float("inf")},
        {"head_lr": float("nan")},
    ],
)
def test_values_that_cannot_be_meant_are_refused_in_one_line(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        make_settings(**changes)
    assert "\n" not in str(caught.value)
    assert any(name in str(caught.value) for name in changes)


@pytest.mark.parametrize("word", ["recipe=paper", "sigma", "sigma=wide", "dim=1.5", "distill=maybe", "crop_scale=1"])
def test_words_that_are_no_setting_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match=r"recipe|sigma|dim|distill|crop_scale"):
        parse_settings([word])


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(AttributeError):
        Settings().dim = 3  # type: ignore[misc]
