import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from conftest import OWN_INPUTS, Call, draw_photos, own_backbone
from selftaught import train
from selftaught.cli import advise as command
from selftaught.cli.advise import advise
from selftaught.data import find_images
from selftaught.networks import Backbone
from selftaught.retrieval import CLEAR_STEP
from selftaught.training import assemble, choose_neighbors, stage


@pytest.mark.parametrize(("things", "k"), [(None, 5), (2, 2), (3, 2), (4, 3), (5, 3), (8, 5), (20, 5)])
def test_a_query_has_fewer_neighbors_than_its_thing_seems_to_have_photos(things: int | None, k: int) -> None:
    choice = choose_neighbors(things)
    assert choice.value == k
    assert choice.reason


def test_advice_names_copies_unreadable_files_and_a_command_that_train_takes(call: Call, tmp_path: Path) -> None:
    folder = draw_photos(tmp_path / "my photos", classes=6, photos=4)
    shutil.copy(folder / "class 0" / "0.jpg", folder / "copy.jpg")
    (folder / "bad.jpg").write_text("no")
    code, text, _ = call("advise", folder, "--backbone", "small", "--device", "cpu")
    assert code == 0
    assert "25 photos, most about 90×70 pixels" in text
    assert "1 file that cannot be read, such as bad.jpg: " in text
    assert "1 exact copy and " in text
    last = text.splitlines()[-1]
    assert last == f"Next: selftaught train '{folder}' --out RUN --backbone small"
    words = shlex.split(last.replace("Next: selftaught ", "").replace("RUN", str(tmp_path / "run")))
    assert call(*words, "--epochs", "0")[0] == 0
    code, text, _ = call("advise", folder, "--backbone", "small", "--device", "cpu", "--allow-skipped")
    assert (code, text.splitlines()[-1].endswith(" --backbone small --allow-skipped")) == (0, True)


def test_a_single_image_is_refused(call: Call, tmp_path: Path) -> None:
    draw_photos(tmp_path / "one", classes=1, photos=1)
    code, _, error = call("advise", tmp_path / "one", "--backbone", "small")
    assert (code, "only one image" in error) == (1, True)


def test_unreadable_images_are_an_error_where_they_are_many(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_text("no")
    for words in ((), ("--allow-skipped",)):
        code, _, error = call("advise", folder, "--backbone", "small", *words)
        assert (code, "none of the images" in error) == (1, True)


def test_brackets_in_a_reason_are_printed(call: Call, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = advise(find_images(photos), "cpu", "small")
    choices = tuple(replace(choice, reason="weights from selftaught[offline]") for choice in advice.choices)
    monkeypatch.setattr("selftaught.cli.advise.advise", lambda *_, **__: replace(advice, choices=choices))
    assert call("advise", photos)[1].count("selftaught[offline]") == len(choices)


def test_advice_in_python_has_a_time_and_all_choices(photos: Path) -> None:
    advice = advise(find_images(photos), "cpu", "small")
    assert advice.seconds > 0
    assert [choice.name for choice in advice.choices] == ["neighbors", "epochs", "batch_size", "backbone"]


def test_advice_counts_photos_of_a_thing_on_what_training_counts_them_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = draw_photos(tmp_path / "photos", classes=8, photos=4)
    (photos / "link.jpg").symlink_to(photos / "class 0" / "0.jpg")
    shutil.copy(photos / "class 0" / "1.jpg", photos / "copy.jpg")
    seen: list[list[Tensor]] = []

    def count(*views: Tensor, least_step: float) -> int:
        assert least_step == CLEAR_STEP
        seen.append([torch.cdist(view, view) for view in views])
        return 4

    for module in (command, assemble):
        monkeypatch.setattr(
            module, "build_backbone", lambda *_: Backbone("own", own_backbone(), OWN_INPUTS, True, "own")
        )
    for module in (command, stage):
        monkeypatch.setattr(module, "count_photos_per_thing", count)
    advice = advise(find_images(photos), "cpu")
    train(photos, out=tmp_path / "run", epochs=0, quiet=True, input="files", workers=0, precision="32-true")
    advised, counted = seen
    assert len(advised) == len(counted) == 2
    for ours, theirs in zip(sorted(advised, key=torch.sum), sorted(counted, key=torch.sum), strict=True):
        assert len(ours) == 34, "copies and links too"
        torch.testing.assert_close(ours, theirs, rtol=0.01, atol=0.02)
    assert {choice.name: choice.value for choice in advice.choices}["neighbors"] == 3


def test_a_network_that_knows_nothing_counts_nothing_as_in_training(photos: Path) -> None:
    advice = advise(find_images(photos), "cpu", "small")
    assert advice.photos_per_thing is None
    assert advice.choices[0].value == 5
