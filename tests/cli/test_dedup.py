import html
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import empty, long, tensor

from conftest import Call, read_csv
from selftaught import Embedder
from selftaught.data import find_images
from selftaught.duplicates import Duplicates, moving_script, write_duplicates_page
from selftaught.duplicates.copies import Copy, CopyGroup, distances_of_known_copies, find_copies
from selftaught.duplicates.pictures import Picture, watermark
from selftaught.errors import SelftaughtError
from selftaught.retrieval import Pairs, Proposal


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """20 different pictures, and of the first an equal file, equal pixels and a smaller one."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(20):
        pixels = rng.integers(0, 255, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((96, 72), Image.Resampling.BICUBIC).save(folder / f"{number:02d}.png")
    first = Image.open(folder / "00.png")
    shutil.copy(folder / "00.png", folder / "it's a copy.png")
    first.save(folder / "pixels.bmp")
    first.resize((80, 60), Image.Resampling.BICUBIC).save(folder / "small.png")
    return folder


def test_copies_are_listed_shown_and_moved_by_the_script_only(call: Call, run: Path, collection: Path) -> None:
    out, script = collection.parent / "found", collection.parent / "moves.sh"
    words = ("dedup", run, collection, "--out", out, "--threshold", 0.05, "--script", script)
    code, text, _ = call(*words)
    assert code == 0
    assert "nothing was moved yet" in text
    found = [row for row in read_csv(out / "duplicates.csv") if row["group"] == "1"]
    kinds = {row["path"]: row["kind"] for row in found}
    assert kinds["pixels.bmp"] == "best"  # as large and as sharp as the others, and most bytes
    assert kinds["00.png"] == kinds["it's a copy.png"] == "same pixels"
    assert kinds.get("small.png", "near") == "near"
    page = (out / "duplicates.html").read_text()
    assert "it&#x27;s a copy.png" in page
    assert "http" not in page.replace("http-equiv", "")
    before = sorted(path.name for path in collection.iterdir())
    if os.name == "posix":
        done = subprocess.run(["sh", script], check=True, capture_output=True, text=True)
        after = sorted(path.name for path in collection.iterdir())
        moved = sorted(path.name for path in (out / "moved").iterdir())
        assert "pixels.bmp" in after
        assert done.stdout == f"{len(moved)} moved to {out / 'moved'}\n"
        assert sorted(after + moved) == before
        again = subprocess.run(["sh", script], check=True, capture_output=True, text=True)
        assert "not there" in again.stderr
        assert again.stdout.startswith("0 moved")


def test_different_pictures_have_no_duplicates(call: Call, run: Path, collection: Path) -> None:
    for name in ("it's a copy.png", "pixels.bmp", "small.png"):
        (collection / name).unlink()
    code, text, _ = call("dedup", run, collection, "--out", collection.parent / "found")
    assert (code, text.splitlines()[0]) == (0, "No duplicates among 20 photos.")
    assert read_csv(collection.parent / "found" / "duplicates.csv") == []


def test_one_copy_is_told_in_the_singular(call: Call, run: Path, collection: Path) -> None:
    for name in ("pixels.bmp", "small.png"):
        (collection / name).unlink()
    out, script = collection.parent / "found", collection.parent / "moves.sh"
    code, text, _ = call("dedup", run, collection, "--out", out, "--threshold", 0, "--script", script)
    assert (code, text.splitlines()[0]) == (0, "Among 21 photos, 1 is a copy, in 1 group: 1 with the same bytes.")
    assert "moves 1 copy when" in text


def test_every_part_of_the_work_shows_how_far_it_is(
    call: Call, run: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selftaught.console.PLAIN_INTERVAL", 0)
    Image.new("RGB", (9, 9)).save(collection / "a.png")
    shutil.copy(collection / "a.png", collection / "b.png")
    for more in ([], ["--threshold", 0.1]):
        told = call("dedup", run, collection, "--out", collection.parent / f"found {len(more)}", *more)[2]
        for part in ("making test copies", "embedding images", "comparing files"):
            assert f"{part}: 25/25" in told


def test_photos_that_vanish_once_they_are_embedded_are_left_out(collection: Path, embedder: Embedder) -> None:
    images = find_images(collection)
    vectors = embedder.encode(images.paths())
    whole = distances_of_known_copies(embedder, images, vectors)
    (collection / images.files[0]).unlink()
    (collection / images.files[9]).write_bytes(b"no image")
    known = distances_of_known_copies(embedder, images, vectors)
    assert len(known) == len(whole) * (len(images) - 2) // len(images)
    assert find_copies(images, vectors, known).known is known
    shutil.rmtree(collection)
    with pytest.raises(SelftaughtError, match=r"the photos in .*photos can no longer be read"):
        distances_of_known_copies(embedder, images, vectors)


def test_links_are_no_copies(call: Call, run: Path, collection: Path) -> None:
    (collection / "link.png").symlink_to("05.png")
    code, _, log = call("dedup", run, collection, "--out", collection.parent / "found", "--threshold", 0)
    assert code == 0
    assert "left out 1 link to" in log
    assert "link.png" not in (collection.parent / "found" / "duplicates.csv").read_text()


def test_what_cannot_be_done_is_said_before_the_work(call: Call, run: Path, collection: Path) -> None:
    full = collection.parent / "full"
    full.mkdir()
    (full / "x").touch()
    assert "not empty" in call("dedup", run, collection, "--out", full)[2]
    assert "0 or more" in call("dedup", run, collection, "--out", "new", "--threshold", "-1")[2]
    assert "0 or more" in call("dedup", run, collection, "--out", "new", "--threshold", "nan")[2]
    new = collection.parent / "new"
    assert "is a folder" in call("dedup", run, collection, "--out", new, "--script", new)[2]
    archive = collection.parent / "s.tar"
    with tarfile.open(archive, "w") as file:
        file.add(collection / "00.png", "00.png")
    code, _, error = call("dedup", run, archive, "--out", collection.parent / "new", "--script", full / "m.sh")
    assert (code, "tar files" in error) == (2, True)
    assert not (collection.parent / "new").exists()


def test_a_pair_that_is_counted_for_another_reason_is_not_said_to_be_left_out(collection: Path, tmp_path: Path) -> None:
    seen = Picture(2, 2, 9, 1.0, "", True, True)
    group = CopyGroup((Copy(0, "best", 0, seen), Copy(1, "fingerprint", 0.5, seen)), 0.5)
    pairs = Pairs(tensor([0, 0]), tensor([1, 2]), tensor([0.51, 0.62]))
    found = Duplicates(find_images(collection), (group,), Proposal(0.3, ""), pairs, tensor([0.51]), tensor([0.1]))
    write_duplicates_page(tmp_path / "page.html", found)
    page = (tmp_path / "page.html").read_text()
    assert ("distance 0.510" in page, "distance 0.620" in page) == (False, True)
    assert "by their fingerprints" not in page
    write_duplicates_page(tmp_path / "page.html", replace(found, proposal=Proposal(None, "for a reason")))
    assert "none (for a reason); copies were found by their fingerprints" in (tmp_path / "page.html").read_text()


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("name", ["a'b.png", "$(touch bad).png", "-rf.png", "new\nline.png", "b\\.png", "ü \udcff.png"])
def test_the_script_moves_files_of_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "some dir\n"
    folder.mkdir()
    for file in ("best.png", name):
        Image.new("RGB", (2, 2)).save(tmp_path / "p.png")
        (tmp_path / "p.png").rename(folder / file)
    images = find_images(tmp_path)
    best = images.files.index("some dir\n/best.png")
    seen = Picture(2, 2, 9, 1.0, "", True, True)
    group = CopyGroup((Copy(best, "best", 0, seen), Copy(1 - best, "near", 0, seen)), 0)
    none = Pairs(empty(0, dtype=long), empty(0, dtype=long), empty(0))
    found = Duplicates(images, (group,), Proposal(None, ""), none, empty(0), tensor([0.1]))
    script = tmp_path / "moves.sh"
    script.write_bytes(moving_script(found, tmp_path / "target").encode("utf-8", "surrogateescape"))
    subprocess.run(["sh", script, "-other"], check=True, cwd=tmp_path)
    assert (tmp_path / "-other" / "some dir\n" / name).is_file()
    assert [path.name for path in folder.iterdir()] == ["best.png"]
    assert not list(tmp_path.rglob("bad"))


def test_photos_can_be_seen_in_another_way(call: Call, run: Path, collection: Path) -> None:
    distances = []
    for name, options in (("a", ()), ("b", ("--size", 48, "--mirror")), ("c", ("--whiten",))):
        out = collection.parent / name
        assert call("dedup", run, collection, "--out", out, "--threshold", 0.5, *options)[0] == 0
        distances.append([row["distance"] for row in read_csv(out / "duplicates.csv")])
    assert distances[0] != distances[1] != distances[2] != distances[0]


def test_a_chain_of_pairs_makes_no_copy_of_what_is_further_than_the_threshold(collection: Path) -> None:
    images = find_images(collection)
    line = 0.4 * torch.arange(len(images), dtype=torch.float32)[:, None]
    twins = [images.files.index(name) for name in ("00.png", "it's a copy.png", "pixels.bmp")]
    line[twins] = 0
    found = find_copies(images, line, torch.tensor([0.5]), threshold=0.5)
    copies = [copy for group in found.groups for copy in group.copies]
    assert len({copy.index for copy in copies}) == len(copies)
    assert len(found.groups) > 5
    for group in found.groups:
        assert all(torch.dist(line[copy.index], line[group.copies[0].index]) <= 0.5 for copy in group.copies)
        assert len({copy.index for copy in group.copies} & set(twins)) in (0, 3)
    script = moving_script(found, collection / "moved")
    assert script.count("\nmove ") == found.moved == found.extra


def test_copies_by_fingerprint_alone_are_shown_but_not_moved(collection: Path, tmp_path: Path) -> None:
    for path in sorted(collection.iterdir())[8:]:
        path.unlink()
    watermark(Image.open(collection / "00.png")).save(collection / "marked.png")
    images = find_images(collection)
    vectors = 5 * torch.arange(len(images), dtype=torch.float32)[:, None]
    vectors[images.files.index("marked.png")] = 0.8
    found = find_copies(images, vectors, torch.tensor([0.1, 0.1, 0.1, 1, 1]))
    assert found.kinds == ["fingerprint"]
    assert (found.extra, found.moved) == (1, 0)
    assert "\nmove " not in moving_script(found, tmp_path)
    write_duplicates_page(tmp_path / "page.html", found)
    assert "same fingerprint, distance 0.800: not moved" in (tmp_path / "page.html").read_text()


def test_the_page_names_all_copies_of_a_large_group(collection: Path, tmp_path: Path) -> None:
    images = find_images(collection)
    found = find_copies(images, torch.zeros(len(images), 1), torch.tensor([0.5]), threshold=0.5)
    assert found.extra == len(images) - 1
    write_duplicates_page(tmp_path / "page.html", found)
    page = html.unescape((tmp_path / "page.html").read_text().partition("<h2>Groups")[2])
    assert "and 11 more" in page
    assert all(name in page for name in images.files)
