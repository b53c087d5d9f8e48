import os
from pathlib import Path

import pytest

from conftest import TINY, Call
from selftaught import train
from selftaught.data import DecodedCache


def test_decoded_images_are_listed_and_deleted(
    call: Call, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFTAUGHT_CACHE", str(tmp_path / "cache"))
    code, out, _ = call("cache", "list")
    assert (code, "0.00 GB so far" in out) == (0, True)
    train(photos, out=tmp_path / "run", epochs=1, quiet=True, **TINY)
    code, out, _ = call("cache", "list")
    assert code == 0
    assert str(photos) in out
    assert "of at most" in out
    code, out, _ = call("cache", "clear")
    assert (code, "deleted" in out) == (0, True)
    assert not any((tmp_path / "cache").iterdir())


def test_decoded_images_in_use_are_kept(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFTAUGHT_CACHE", str(tmp_path))
    cache = DecodedCache("some photos [old]")
    assert "some photos [old]" in call("cache", "list")[1]
    code, _, err = call("cache", "clear")
    assert (code, "some photos [old]: try again when no training is running" in err) == (1, True)
    cache.close()
    assert call("cache", "clear")[0] == 0
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "about.json")
    assert "cannot be deleted" in call("cache", "clear")[2], "reading it would never end"
