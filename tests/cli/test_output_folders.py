"""Commands that fill a folder: all files or none, and one process at a time."""

import errno
import os
from pathlib import Path

import pytest

from conftest import Call
from selftaught.files import lock_folder

COMMANDS = {
    "dedup": ["RUN", "PHOTOS", "--out", "OUT", "--script", "OUT.sh"],
    "cluster": ["RUN", "PHOTOS", "--out", "OUT", "--smallest", "2", "--links"],
    "share": ["RUN", "--out", "OUT"],
}


@pytest.fixture(params=COMMANDS)
def words(request: pytest.FixtureRequest, run: Path, photos: Path, tmp_path: Path) -> list[str]:
    """A command that fills the folder "out"."""
    if request.param == "cluster":
        pytest.importorskip("sklearn")
    places = {"RUN": run, "PHOTOS": photos, "OUT": tmp_path / "out", "OUT.sh": tmp_path / "out.sh"}
    return [request.param, *(str(places.get(word, word)) for word in COMMANDS[request.param])]


@pytest.mark.parametrize("full", [0, 1])
def test_after_a_full_disk_the_same_command_does_all(
    full: int, words: list[str], tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, written = tmp_path / "out", []

    def fsync(_handle: int) -> None:
        written.append(1)
        if len(written) > 2 * full:  # a file and its folder
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        code, _, told = call(*words)
    assert (code, "No space left on device" in told) == (1, True)
    assert not out.exists()
    (out / ".new.files.tmp").mkdir(parents=True)  # as a killed process leaves it
    (out / ".new.files.tmp" / "half").touch()
    code, _, told = call(*words)
    assert code == 0, told
    assert not any(path.name.startswith(".") or path.name == "half" for path in out.iterdir())
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    code, _, told = call(*words)
    assert (code, "is not empty: give another --out" in told) == (2, True)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_a_second_process_is_refused(words: list[str], tmp_path: Path, call: Call) -> None:
    (tmp_path / "out").mkdir()
    with lock_folder(tmp_path / "out"):
        code, _, told = call(*words)
    assert (code, "another process is at work in" in told) == (2, True)


@pytest.mark.parametrize("command", ["dedup", "cluster"])
def test_no_folder_is_filled_among_the_photos_that_it_is_made_of(
    command: str, run: Path, photos: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(photos.rglob("*"))
    monkeypatch.chdir(photos)
    for words in ([], ["--out", photos.parent / photos.name / "a" / "b"]):
        code, _, told = call(command, run, ".", *words)
        assert code == 2
        assert "lies among the photos" in told
        assert "give an --out outside of" in told
    assert sorted(photos.rglob("*")) == before
