"""Methods by name: ours, those of other packages, classes of one's own; and the settings that each has."""

import json
import re
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from small_learner import BATCH, IMAGES, small_learner

from conftest import TINY, Call
from selftaught import train
from selftaught.errors import SelftaughtError, UsageError
from selftaught.learners import METHODS, find_method, load_settings, make_settings, parse_settings, registry
from selftaught.learners.isif import ISIF, ISIFSettings
from selftaught.recipes import Count, setting_kinds


@dataclass(frozen=True)
class OwnSettings(ISIFSettings):
    strength: Count = 3


class Own(ISIF):
    settings_class = OwnSettings


@pytest.fixture(autouse=True)
def no_classes_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_OWN", {})


def provide(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Another package that brings a method "other"."""
    point = EntryPoint("other", value, registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.GROUP else [])


@pytest.mark.parametrize("method", METHODS)
def test_settings_of_a_method_survive_being_saved(method: str) -> None:
    chosen = make_settings(method=method, dim=7)
    assert type(chosen) is METHODS[method].learner.settings_class
    assert load_settings(json.loads(json.dumps(asdict(chosen)))) == chosen


def test_a_run_saved_with_the_settings_of_all_methods_still_loads() -> None:
    old = {"method": "moco", "queue": 64, "sigma": 2.0, "clusters": None, "crop_scale": [0.2, 1.0], "gone": 1}
    assert load_settings(old) == make_settings(method="moco", queue=64, crop_scale=(0.2, 1.0))
    assert load_settings({"sigma": 2.0, "queue": 64}) == make_settings(sigma=2.0)


@pytest.mark.parametrize("saved", [{"dim": "wide"}, {"dim": None}, {"method": 3}, {"method": "none"}, {"lr": [1]}])
def test_saved_values_of_the_wrong_type_are_one_sentence(saved: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(saved))):
        load_settings(saved)


def test_a_setting_of_another_method_is_refused_with_the_methods_that_have_it() -> None:
    with pytest.raises(UsageError, match="queue is a setting of moco and msf, not of stml"):
        make_settings(queue=16)
    with pytest.raises(UsageError, match="queue is a setting of moco and msf, not of byol"):
        parse_settings(["queue=16"], "byol")
    assert parse_settings(["queue=4096"], "moco") == {"queue": 4096}
    assert parse_settings(["method=msf", "queue=4096"]) == {"method": "msf", "queue": 4096}


def test_recipes_bring_what_the_method_has_and_leave_the_rest_out() -> None:
    assert make_settings("sop", method="moco").momentum == 0.9
    assert not hasattr(make_settings("sop", method="isif"), "momentum")


def test_another_package_brings_a_method_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, f"{__name__}:Own")
    assert find_method("other").learner.settings_class.__name__ == "OwnSettings"
    assert make_settings(method="other", strength=5).strength == 5
    assert parse_settings(["strength=4"], "other") == {"strength": 4}
    with pytest.raises(UsageError, match="strength is a setting of other, not of stml"):
        make_settings(strength=4)
    with pytest.raises(UsageError, match="did you mean 'other'"):
        find_method("othr")


@pytest.mark.parametrize("value", ["no_such_package:Own", f"{__name__}:Gone", f"{__name__}:OwnSettings"])
def test_a_method_of_another_package_that_cannot_be_had_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    provide(monkeypatch, value)
    with pytest.raises(UsageError, match="the method 'other'"):
        find_method("other")
    with pytest.raises(UsageError, match="unknown setting"):
        make_settings(no_such_setting=1)


def test_set_help_lists_the_settings_of_all_methods(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, f"{__name__}:Own")
    code, text, _ = call("train", "--set", "help")
    assert code == 0
    assert "of moco, msf: queue" in text.splitlines()
    assert "of other: strength" in text.splitlines()
    for method in METHODS.values():
        missing = setting_kinds(method.learner.settings_class).keys() - set(re.findall(r"\w+", text))
        assert missing <= {"recipe", "method"}, "options of their own"


def test_the_method_in_the_documentation_trains(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "photos").symlink_to(photos)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "extending.md", "exec"), {"__name__": "extending"})
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["settings"]["temperature"] == 0.2


def test_a_class_of_ones_own_trains_and_resumes(photos: Path, tmp_path: Path) -> None:
    run, options = tmp_path / "run", {**TINY, "epochs": 1, "quiet": True}
    model = train(photos, out=run, method=Own, strength=2, **options)
    assert model.metric == "cosine"
    saved = json.loads((run / "settings.json").read_text())
    assert saved["settings"]["strength"] == 2
    registry._OWN.clear()  # as in another process
    with pytest.raises(SelftaughtError, match=r"Own is a class: give it to train\(method=…\)"):
        train(resume=run, quiet=True)
    train(resume=run, method=Own, quiet=True)
    with pytest.raises(UsageError, match="must be a name or a subclass"):
        train(photos, out=tmp_path / "none", method=dict, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["moco", "msf", "byol", "nce", "isif", "exemplar"])
def test_batches_hold_each_image_once_in_random_order(method: str) -> None:
    learner, embeddings = small_learner(method), torch.zeros(IMAGES, 6)
    first, second = (learner.batches(embeddings, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert first.shape == (IMAGES // BATCH, BATCH)
    assert sorted(first.flatten().tolist()) == list(range(IMAGES))
    assert not torch.equal(first, second)
