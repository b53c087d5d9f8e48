"""A subfolder that cannot be read stops a command, unless it may leave images out."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import TINY, Call
from selftaught import train
from selftaught.errors import SelftaughtError


@pytest.fixture
def images(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos, among them a folder that the system does not let us list."""
    scan = os.scandir

    def scandir(place: Any = ".") -> Any:
        if not isinstance(place, int) and Path(place).name == "class 5":  # an open folder is a number
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        return scan(place)

    folder = shutil.copytree(photos, tmp_path / "images")
    monkeypatch.setattr(os, "scandir", scandir)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "embed RUN IMAGES --out OUT.npy",
        "evaluate RUN IMAGES --labels LABELS",
        "dedup RUN IMAGES --out OUT",
        "search RUN IMAGES --in IMAGES --out OUT.png",
    ],
)
def test_with_allow_skipped_a_folder_that_cannot_be_read_is_left_out_and_named(
    command: str, images: Path, run: Path, tmp_path: Path, call: Call
) -> None:
    rows = [f"class {c}/{i}.jpg,{c}" for c in range(5) for i in range(4)]
    (tmp_path / "labels.csv").write_text("\n".join(["path,label", *rows]))
    places = {"RUN": run, "IMAGES": images, "OUT": tmp_path / "out", "LABELS": tmp_path / "labels.csv"}
    words = [str(places.get(word, word.replace("OUT", str(tmp_path / "out")))) for word in command.split()]
    code, _, told = call(*words)
    assert (code, f"cannot read the folder {images / 'class 5'}: Permission denied" in told) == (1, True)
    assert "--allow-skipped" in told
    code, _, told = call(*words, "--allow-skipped")
    assert (code, "left out class 5/: " in told) == (0, True)
    assert "more image" not in told


def test_scores_need_two_classes_among_the_images_that_are_left(images: Path, run: Path, call: Call) -> None:
    for number in range(4):
        shutil.rmtree(images / f"class {number}")
    code, _, told = call("evaluate", run, images, "--allow-skipped")
    assert (code, "are of one class (class 4)" in told) == (1, True)


def test_export_and_data_check_leave_such_a_folder_out(images: Path, run: Path, tmp_path: Path, call: Call) -> None:
    for words in (["data", "check", images], ["export", run, images, "--torch", tmp_path / "model.pt2"]):
        code, _, told = call(*words)
        assert (code, "leave it out with --allow-skipped" in told) == (1, True)
        code, said, told = call(*words, "--allow-skipped")
        assert (code, "left out class 5/: the folder cannot be read" in told) == (0, True)
        assert "20 images in" in said or "on 10 given images" in said


def test_an_index_leaves_such_a_folder_out(images: Path, run: Path, tmp_path: Path, call: Call) -> None:
    pytest.importorskip("lancedb")
    place = tmp_path / "index"
    assert call("index", run, images, "--out", place)[0] == 1
    code, said, told = call("index", run, images, "--out", place, "--allow-skipped")
    assert (code, "20 images written" in said, "left out class 5/" in told) == (0, True, True)
    assert call("index", "sync", place)[0] == 1
    assert call("index", "sync", place, "--allow-skipped")[0] == 0


def test_a_run_lists_such_a_folder_as_unreadable(images: Path, tmp_path: Path) -> None:
    with pytest.raises(SelftaughtError, match="cannot read the folder"):
        train(images, out=tmp_path / "run", epochs=1, quiet=True, **TINY)
    train(images, out=tmp_path / "run", epochs=1, quiet=True, allow_skipped=True, **TINY)
    assert "class 5/," in (tmp_path / "run" / "skipped.csv").read_text()


def test_the_folder_itself_must_be_readable(images: Path, run: Path, call: Call) -> None:
    code, _, told = call("evaluate", run, images / "class 5", "--allow-skipped")
    assert (code, "cannot read the folder" in told) == (1, True)
