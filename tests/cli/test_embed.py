"""selftaught embed: interrupted anywhere, the same command goes on and ends with the same bytes."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from conftest import Call, draw_photos
from selftaught.data import find_images
from selftaught.errors import SelftaughtError
from selftaught.unfinished import Unfinished, images_digest

# Batches of three images, each of them saved and slow enough to be killed at.
PROGRAM = """
import time
from selftaught import unfinished
from selftaught.cli import model_commands
from selftaught.cli.main import main
unfinished.SAVE_INTERVAL = 0.0
model_commands.BATCH_SIZE = 3
save = unfinished.Unfinished.save
def slowly(self):
    save(self)
    time.sleep(0.3)
unfinished.Unfinished.save = slowly
main()
"""


def killed_after(done: int, notes: Path, *words: object) -> None:
    """Run a command in a process of its own, and kill it when so many images are done."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *map(str, words)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (notes.exists() and json.loads(notes.read_text())["done"] >= done):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """24 images and one that is none."""
    folder = draw_photos(tmp_path / "images", classes=6, photos=4)
    (folder / "class 0" / "bad.jpg").write_text("no")
    return folder


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_embedding_killed_and_interrupted_ends_with_the_same_bytes(
    call: Call, run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm, stopped = tmp_path / "calm.npy", tmp_path / "stopped.npy"
    monkeypatch.setattr("selftaught.cli.model_commands.BATCH_SIZE", 3)
    assert call("embed", run, images, "--out", calm)[0] == 0
    killed_after(6, tmp_path / "stopped.npy.partial.json", "embed", run, images, "--out", stopped)
    add = Unfinished.add
    for number, done in ((signal.SIGTERM, 15), (signal.SIGINT, 21)):

        def interrupted(self: Unfinished, *batch: Any, number: int = number, done: int = done) -> None:
            add(self, *batch)
            if self.done == done:
                signal.raise_signal(number)

        with monkeypatch.context() as patch:
            patch.setattr(Unfinished, "add", interrupted)
            code, _, error = call("embed", run, images, "--out", stopped)
        assert code == 130
        first, last = error.strip().splitlines()
        assert "going on with" in first
        assert f"{done} of 25 images are done; the same command goes on from there" in last
        assert not stopped.exists()
    code, _, error = call("embed", run, images, "--out", stopped)
    assert (code, "21 of 25 images are done" in error) == (0, True)
    for name in ("npy", "json", "skipped.csv"):
        assert (tmp_path / f"stopped.{name}").read_bytes() == (tmp_path / f"calm.{name}").read_bytes()
    assert len(np.load(stopped)) == 24
    assert not list(tmp_path.glob("*partial*"))


def test_finished_work_is_kept_when_too_many_images_are_unreadable(call: Call, run: Path, images: Path) -> None:
    (images / "class 1" / "worse.jpg").touch()
    out = images.parent / "v.parquet"
    assert call("embed", run, images, "--out", out)[0] == 1
    code, _, log = call("embed", run, images, "--out", out, "--allow-skipped")
    assert (code, "26 of 26 images are done" in log) == (0, True)
    assert pq.read_table(out).num_rows == 24
    assert not list(images.parent.glob("*partial*"))


def test_what_is_of_other_images_is_started_over(call: Call, run: Path, images: Path) -> None:
    out = images.parent / "v.npy"
    (images / "class 1" / "worse.jpg").touch()
    assert call("embed", run, images, "--out", out)[0] == 1
    (images / "class 1" / "worse.jpg").unlink()
    code, _, log = call("embed", run, images, "--out", out)
    assert (code, len(np.load(out))) == (0, 24)
    assert "v.npy.partial is of other images or another model: started over" in log


def begun(folder: Path, **changes: object) -> Unfinished:
    about = {"model": "m", "images": "i", "dim": 2, "batch_size": 3} | changes
    return Unfinished(folder / "v.npy", **about)  # type: ignore[arg-type]


def test_only_what_was_saved_counts_and_other_or_damaged_beginnings_do_not(tmp_path: Path) -> None:
    first = begun(tmp_path)
    first.add(torch.ones(2, 2), [(1, "empty file")])
    first.save()
    first.add(torch.zeros(3, 2), [])  # never saved
    first.close()
    again = begun(tmp_path)
    assert (again.done, again.rows, again.failures, again.given_up) == (3, 2, [(1, "empty file")], False)
    again.add(torch.full((1, 2), 5.0), [(0, "x"), (2, "y")])
    assert again.vectors().tolist() == [[1, 1], [1, 1], [5, 5]]
    assert again.failures == [(1, "empty file"), (3, "x"), (5, "y")]
    again.save()
    again.close()
    content, notes = (tmp_path / "v.npy.partial").read_bytes(), (tmp_path / "v.npy.partial.json").read_text()
    for change in ({"model": "n"}, {"images": "j"}, {"dim": 3}, {"batch_size": 4}):
        other = begun(tmp_path, **change)
        assert (other.done, other.given_up) == (0, True)
        other.close()
        assert begun(tmp_path, **change).given_up is False, "it is told once"
        (tmp_path / "v.npy.partial").write_bytes(content)
        (tmp_path / "v.npy.partial.json").write_text(notes)
    (tmp_path / "v.npy.partial").write_bytes(content[:-1])
    assert begun(tmp_path).given_up
    for damaged in ("{", "[]", "{}", notes.replace('"rows": 3', '"rows": 4')):
        (tmp_path / "v.npy.partial.json").write_text(damaged)
        assert (begun(tmp_path).done, begun(tmp_path).rows) == (0, 0)


def test_a_full_disk_is_one_sentence_and_keeps_what_is_done(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    unfinished = begun(tmp_path)
    unfinished.add(torch.ones(3, 2), [])
    unfinished.save()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(
            SelftaughtError, match=r"cannot write .*v\.npy\.partial: File too large; what is done is kept"
        ):
            unfinished.add(torch.ones(3000, 2), [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    unfinished.close()
    assert begun(tmp_path).done == 3


def test_the_digest_of_images_changes_with_names_and_contents(tmp_path: Path) -> None:
    folder = draw_photos(tmp_path / "images", classes=2, photos=2)
    digests = [images_digest(find_images(folder))]
    assert images_digest(find_images(folder)) == digests[0]
    os.utime(folder / "class 0" / "0.jpg", ns=(5, 5))
    digests.append(images_digest(find_images(folder)))
    (folder / "class 0" / "0.jpg").rename(folder / "class 0" / "7.jpg")
    digests.append(images_digest(find_images(folder)))
    assert len(set(digests)) == 3


def test_shards_are_embedded_evaluated_and_searched(call: Call, run: Path, photos: Path, tmp_path: Path) -> None:
    for shard in range(2):
        with tarfile.open(tmp_path / f"{shard:02d}.tar", "w") as archive:
            for number in range(3 * shard, 3 * shard + 3):
                archive.add(photos / f"class {number}", f"class {number}")
    pattern = f"{tmp_path}/{{00..01}}.tar"
    assert call("embed", run, pattern, "--out", tmp_path / "s.npy")[0] == 0
    assert call("embed", run, photos, "--out", tmp_path / "f.npy")[0] == 0
    names = [json.loads((tmp_path / f"{which}.json").read_text())["paths"] for which in "sf"]
    inner = [name.split("/", 1)[1] for name in names[0]]
    assert sorted(inner) == names[1]
    order = [inner.index(name) for name in names[1]]
    np.testing.assert_allclose(np.load(tmp_path / "s.npy")[order], np.load(tmp_path / "f.npy"), rtol=1e-4, atol=1e-5)

    scores = [json.loads(call("evaluate", run, source, "--json", "-")[1]) for source in (pattern, photos)]
    assert scores[0] == scores[1]
    query = tmp_path / "00.tar" / "class 0" / "1.jpg"
    for within in (tmp_path / "s.npy", pattern):
        code, text, _ = call("search", run, query, "--in", within, "-k", 3, "--out", tmp_path / "sheet.png")
        assert (code, len(text.splitlines())) == (0, 4)
        assert str(query) not in text
