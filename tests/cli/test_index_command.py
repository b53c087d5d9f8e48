"""selftaught index and search: killed anywhere, the same command goes on; results in every form."""

import csv
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from several import PATIENCE, apart, run_command

from conftest import Call, draw_photos
from selftaught.embedder import Embedder
from selftaught.index import MODEL, changes, collection, open_index
from selftaught.index.table import ImageTable, open_table

pytest.importorskip("lancedb")


def index_and_die(command: tuple[Any, ...], log: Path) -> None:
    """Index in batches of three images, each of them written, and be killed after the third."""
    patch = pytest.MonkeyPatch()
    patch.setattr(changes, "SAVE_INTERVAL", 0.0)
    patch.setattr("selftaught.encoding.BATCH_SIZE", 3)
    put, batches = ImageTable.put, 0

    def put_or_die(table: ImageTable, *batch: Any) -> None:
        nonlocal batches
        put(table, *batch)
        batches += 1
        if batches == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    patch.setattr(ImageTable, "put", put_or_die)
    run_command(log, *command)


def make_index_and_die(command: tuple[Any, ...], log: Path) -> None:
    pytest.MonkeyPatch().setattr(collection, "write_model", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    run_command(log, *command)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """24 images and one that is none."""
    folder = draw_photos(tmp_path / "images", classes=6, photos=4)
    (folder / "class 0" / "bad.jpg").write_text("no")
    return folder


@pytest.fixture
def index(call: Call, run: Path, images: Path, tmp_path: Path) -> Path:
    code, text, log = call("index", run, images, "--out", tmp_path / "index")
    assert (code, text.splitlines()[0]) == (0, f"24 images written, 0 removed; 24 in {tmp_path / 'index'}")
    assert text.splitlines()[1:] == [f"Next: selftaught search {tmp_path / 'index'} QUERY.jpg"]
    assert "left out class 0/bad.jpg: not an image" in log
    return tmp_path / "index"


def rows_of(folder: Path) -> dict[str, Sequence[Any]]:
    found = open_table(folder).column("path", "size", "changed", "thumbnail", "vector").sort_by("path")
    columns: dict[str, Sequence[Any]] = found.to_pydict()
    return columns


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_an_index_killed_and_interrupted_loses_nothing_and_ends_with_the_same_rows(
    call: Call, run: Path, images: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = tmp_path / "stopped"
    command = ("index", run, images, "--out", stopped)
    with apart(index_and_die, command, tmp_path / "log") as process:
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
    kept = rows_of(stopped)
    assert 6 <= len(kept["path"]) < 24

    put = ImageTable.put

    def interrupted(self: ImageTable, *batch: Any) -> None:
        put(self, *batch)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(ImageTable, "put", interrupted)
        patch.setattr("selftaught.encoding.BATCH_SIZE", 3)
        patch.setattr("selftaught.index.changes.SAVE_INTERVAL", 0.0)
        code, _, log = call(*command)
    assert code == 130
    assert f"in the index already: {len(kept['path'])} of 25 images in {images}" in log
    assert "images are done; the same command goes on from there" in log

    code, text, _ = call(*command)
    assert (code, f"; 24 in {stopped}" in text) == (0, True)
    calm, after = rows_of(index), rows_of(stopped)
    for name in ("path", "size", "changed", "thumbnail"):
        assert after[name] == calm[name]
    for one, other in zip(after["vector"], calm["vector"], strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-5)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_an_index_killed_while_it_is_made_is_made_by_the_same_command(
    call: Call, run: Path, images: Path, tmp_path: Path
) -> None:
    command = ("index", run, images, "--out", tmp_path / "made")
    with apart(make_index_and_die, command, tmp_path / "log") as process:
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
    assert call("search", tmp_path / "made", images / "class 0" / "0.jpg")[0] == 2
    assert call(*command)[0] == 0
    assert len(open_index(tmp_path / "made", "cpu")) == 24


def test_an_index_whose_making_a_full_disk_has_ended_is_made_by_the_same_command(
    call: Call, run: Path, images: Path, tmp_path: Path
) -> None:
    (tmp_path / "made" / "images.lance" / "_versions").mkdir(parents=True)  # and no version in it
    assert call("search", tmp_path / "made", images / "class 0" / "0.jpg")[0] == 2
    assert call("index", run, images, "--out", tmp_path / "made")[0] == 0
    assert len(open_index(tmp_path / "made", "cpu")) == 24


def test_an_index_is_added_to_removed_from_and_synced(call: Call, index: Path, images: Path, tmp_path: Path) -> None:
    other = draw_photos(tmp_path / "other", classes=1, photos=2)
    assert call("index", "add", index, other)[1] == f"2 images written, 0 removed; 26 in {index}\n"
    text = call("index", "remove", index, images / "class 5", other / "class 0" / "1.jpg")[1]
    assert text.startswith(f"0 images written, 5 removed; 21 in {index}\n")
    assert "index sync would add them again" in text
    assert "sync" not in call("index", "remove", index, other)[1], "a folder that was taken out is not followed"
    assert call("index", "add", index, other)[0] == 0
    assert call("index", "remove", index, other / "class 0" / "1.jpg")[0] == 0
    (images / "class 1" / "0.jpg").unlink()
    code, text, _ = call("index", "sync", index, images)
    assert (code, text) == (0, f"4 images written, 1 removed; 24 in {index}\n")
    code, text, _ = call("index", "sync", index)
    assert (code, text) == (0, f"1 image written, 0 removed; 25 in {index}\n")


def test_an_index_that_has_become_empty_is_searched_in_vain(call: Call, index: Path, images: Path) -> None:
    assert call("index", "remove", index, images)[0] == 0
    code, _, error = call("search", index, images / "class 0" / "0.jpg")
    assert (code, error) == (1, f"selftaught: there is nothing in {index} besides the query itself\n")


def test_images_are_removed_without_the_model(
    call: Call, index: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Embedder, "load")
    gone = images / "class 5"
    shutil.rmtree(gone)
    assert call("index", "remove", index, gone)[:2] == (0, f"0 images written, 4 removed; 20 in {index}\n")


def test_results_come_as_table_json_csv_and_sheet(call: Call, index: Path, images: Path, tmp_path: Path) -> None:
    queries = (images / "class 1" / "0.jpg", images / "class 2")
    (queries[1] / "0.jpg").rename(queries[1] / "two\nlines.jpg")
    sheet = tmp_path / "sheet.png"
    file = tmp_path / "found.csv"
    said = f"results: {file}\ncontact sheet: {sheet}\n"
    assert call("search", index, *queries, "-k", 3, "--out", sheet, "--csv", file)[:2] == (0, said)
    code, text, _ = call("search", index, *queries, "-k", 3, "--out", sheet)
    assert code == 0
    lines = text.splitlines()
    assert lines[0] == f"query {queries[0]}"
    assert len(lines) == 5 * 4 + 1
    assert lines[1].split()[3:5] == ["closer", "than"]
    assert lines[-1] == f"contact sheet: {sheet}"
    with Image.open(sheet) as picture:
        assert picture.height > 5 * 160

    code, text, _ = call("search", index, *queries, "-k", 3, "--json", "-")
    found = json.loads(text)
    assert (code, len(found)) == (0, 5)
    table = list(csv.DictReader(io.StringIO(file.read_text())))
    for number, entry in enumerate(found):
        rows = table[3 * number : 3 * number + 3]
        assert [row["query"] for row in rows] == [entry["query"]] * 3
        assert [row["path"] for row in rows] == [near["path"] for near in entry["neighbors"]]
        assert entry["query"] not in [near["path"] for near in entry["neighbors"]], "a query does not find itself"
        distances = [near["distance"] for near in entry["neighbors"]]
        assert distances == sorted(distances)
        assert all(0 <= near["closer_than"] <= 1 for near in entry["neighbors"])


def test_an_index_and_a_folder_give_the_same(call: Call, run: Path, index: Path, images: Path) -> None:
    query = images / "class 4" / "0.jpg"
    outputs = [
        json.loads(call("search", *words, "-k", 5, "--json", "-")[1])[0]["neighbors"]
        for words in ((index, query), (run, query, "--in", images))
    ]
    for one, other in zip(*outputs, strict=True):
        assert one["path"] == other["path"]
        assert one["distance"] == pytest.approx(other["distance"], abs=1e-3)
        assert one["closer_than"] == pytest.approx(other["closer_than"], abs=0.02)


def test_moved_photos_are_found_by_root_and_the_index_needs_no_run(
    call: Call, index: Path, images: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(images / "class 1", tmp_path / "other")
    assert call("index", "add", index, other)[0] == 0
    moved = images.rename(tmp_path / "moved")
    words = ("search", index, moved / "class 0" / "0.jpg", "-k", 2, "--json", "-")
    _, text, log = call(*words)
    assert str(moved) not in [near["path"] for near in json.loads(text)[0]["neighbors"]]
    assert f"{images} is gone: if the photos have moved, --root says where they are" in log
    _, text, log = call(*words, "--root", moved)
    assert "gone" not in log
    paths = [near["path"] for near in json.loads(text)[0]["neighbors"]]
    assert all(Path(path).is_relative_to(moved) and Path(path).exists() for path in paths)
    assert str(moved / "class 0" / "0.jpg") not in paths


def test_photos_that_are_gone_are_shown_by_their_thumbnails(
    call: Call, index: Path, images: Path, tmp_path: Path
) -> None:
    query = shutil.copy(images / "class 0" / "0.jpg", tmp_path / "it's.jpg")
    for name in ("before", "after"):
        _, _, log = call("search", index, query, "-k", 5, "--out", tmp_path / f"{name}.png")
        if name == "before":
            shutil.rmtree(images)
    assert f"{images} is gone" in log
    before, after = (np.asarray(Image.open(tmp_path / f"{name}.png"), dtype=float) for name in ("before", "after"))
    assert np.abs(before - after).mean() < 5, "the same sheet, a little less sharp"


def test_misuse_is_one_sentence(call: Call, run: Path, index: Path, images: Path, tmp_path: Path) -> None:
    query = images / "class 0" / "0.jpg"
    cases: list[tuple[list[object], str]] = [
        (["search", run, query], "is a model: name the images by --in FOLDER, or make an index"),
        (["search", index, query, "--in", images], "leave --in out"),
        (["search", index, query, "--mirror"], "keeps the options it was made with: leave them out"),
        (["explore", index, "--whiten"], "keeps the options it was made with: leave them out"),
        (["search", index, tmp_path / "gone.jpg"], "no such file"),
        (["search", index, query, "--root", tmp_path / "gone"], "there is no folder"),
        (["search", index, query, "--json", "-", "--csv", "-"], "cannot both be printed"),
        (["search", index, query, "--json", tmp_path / "no" / "x.json"], "there is no folder"),
        (["search", tmp_path / "gone", query], "no run"),
        (["search", run, query, "--in", index], f"selftaught search {index} QUERY"),
        (["index", run, tmp_path / "gone", "--out", tmp_path / "new"], "there is no folder"),
        (["index", "add", run, images], "there is no index in"),
        (["index", "remove", index, index], "nothing is removed"),
        (["index", "push", index, "x"], "qdrant://HOST"),
        (["index", run, images, "--out", images], "exists already and is not empty"),
        (["index", run, images], "--out"),
    ]
    for words, message in cases:
        code, _, error = call(*words)
        assert code in (1, 2), words
        assert message in error, (words, error)
        assert len(error.strip().splitlines()) == 1, error
    assert not (tmp_path / "new").exists()


def test_without_the_extra_it_says_what_to_install(
    call: Call, run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    code, _, error = call("index", run, images, "--out", tmp_path / "new")
    assert (code, error) == (2, "selftaught: an index needs LanceDB: pip install 'selftaught[index]'\n")


@pytest.mark.parametrize("options", [("--size", 48, "--mirror", "--scales", 2), ("--whiten",)])
def test_how_images_are_seen_is_part_of_the_index(
    options: tuple[object, ...], call: Call, run: Path, photos: Path, index: Path, tmp_path: Path
) -> None:
    make, plain = ("index", run, photos, "--out", tmp_path / "other"), open_index(index, "cpu").embedder
    code, text, _ = call(*make, *options)
    assert code == 0
    assert text.startswith("24 images written")
    inside = open_index(tmp_path / "other", "cpu").embedder
    assert inside.identity != plain.identity
    assert call(*make, *options)[1].startswith("0 images written"), "the very same model goes on"
    code, _, error = call(*make)
    assert code == 2
    assert "another --size, --mirror, --scales or --whiten" in error
    code, text, _ = call("search", tmp_path / "other", photos / "class 1" / "0.jpg", "-k", 3, "--json", "-")
    (row,) = json.loads(text)
    expected = inside.encode([photos / "class 1" / "0.jpg", row["neighbors"][0]["path"]])
    assert row["neighbors"][0]["distance"] == pytest.approx(torch.dist(*expected).item(), rel=1e-3)


def test_a_mistyped_subcommand_is_told_from_a_run(call: Call, run: Path, images: Path, tmp_path: Path) -> None:
    code, _, error = call("index", "remve", tmp_path / "index", "photo.jpg")
    assert (code, "'remve' is no subcommand of index: did you mean 'remove'?" in error) == (2, True)
    code, _, error = call("index", "delete", tmp_path / "index", "photo.jpg")
    assert (code, "choose from make, add, remove, sync, push" in error) == (2, True)
    code, _, error = call("index", "resnet50", images)
    assert (code, "to make an index, name it: selftaught index RUN IMAGES --out INDEX" in error) == (2, True)
    code, _, error = call("index", run, images)
    assert (code, "--out" in error, "subcommand" in error) == (2, True, False)


def test_an_index_of_an_untrained_network_is_whitened_and_stays_as_it_was_made(call: Call, tmp_path: Path) -> None:
    images, few = (
        draw_photos(tmp_path / "many", classes=10, photos=4),
        draw_photos(tmp_path / "few", classes=5, photos=4),
    )
    words, model = ("--device", "cpu", "--out"), tmp_path / "model"
    Embedder.untrained("small", "cpu").save(model)
    code, _, log = call("index", model, images, *words, tmp_path / "index")
    assert (code, "--no-whiten" in log) == (0, True)
    assert "whitened" in Embedder.load(tmp_path / "index" / MODEL, "cpu").description
    assert call("index", model, images, *words, tmp_path / "index")[0] == 0
    assert call("index", model, few, *words, tmp_path / "plain")[0] == 0
    draw_photos(few / "more", classes=10, photos=4)
    code, _, log = call("index", model, few, *words, tmp_path / "plain")
    assert (code, "whiten" in log) == (0, False)
    for index, option in (("plain", "--whiten"), ("index", "--mirror")):
        code, _, error = call("index", model, few, option, *words, tmp_path / index)
        assert (code, "of another --size, --mirror, --scales or --whiten" in error) == (2, True)
