"""selftaught embed: interrupted anywhere, the same command goes on and ends with the same bytes."""

import json
import os
import shutil
import signal
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from several import PATIENCE, apart, run_command, run_launched, wait_until

from conftest import Call, draw_photos
from selftaught import Embedder
from selftaught.data import Stamp, find_images
from selftaught.errors import SelftaughtError, UsageError
from selftaught.files import write_atomically
from selftaught.vector_log import MAGIC, Known, LoggedBatch, VectorLog
from selftaught.vectors import read_vectors


def embed_and_wait(run: Path, images: Path, out: Path, go_on: Path) -> None:
    """Embed in batches of three images, and wait after the third batch for a file."""
    patch = pytest.MonkeyPatch()
    patch.setattr("selftaught.encoding.BATCH_SIZE", 3)
    add, added = VectorLog.add, list[Any]()

    def wait_after(log: VectorLog, made: LoggedBatch) -> None:
        add(log, made)
        added.extend(made.files)
        if len(added) == 9:
            out.with_name("waiting").touch()
            wait_until(go_on.exists, lambda: True)

    patch.setattr(VectorLog, "add", wait_after)
    run_command(out.with_name("log"), "embed", run, images, "--out", out)


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
    monkeypatch.setattr("selftaught.encoding.BATCH_SIZE", 3)
    assert call("embed", run, images, "--out", calm)[0] == 0
    with apart(embed_and_wait, run, images, stopped, tmp_path / "never") as process:
        wait_until((tmp_path / "waiting").exists, process.is_alive)
    add = VectorLog.add
    for number, done in ((signal.SIGTERM, 15), (signal.SIGINT, 21)):
        added: list[Any] = []

        def interrupted(
            self: VectorLog, made: LoggedBatch, number: int = number, done: int = done, added: list[Any] = added
        ) -> None:
            add(self, made)
            added += made.files
            if len(known_to(self)) + len(added) == done:
                signal.raise_signal(number)

        with monkeypatch.context() as patch:
            patch.setattr(VectorLog, "add", interrupted)
            code, _, error = call("embed", run, images, "--out", stopped)
        assert code == 130
        first, last = error.strip().splitlines()
        assert "of 25 images are done" in first
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


def test_a_second_call_embeds_only_what_is_new_or_changed(
    call: Call, run: Path, images: Path, embedder: Embedder
) -> None:
    (images / "class 0" / "bad.jpg").unlink()
    for out in (images.parent / "v.npy", images.parent / "v.parquet"):
        assert call("embed", run, images, "--out", out)[0] == 0
    draw_photos(images.parent / "more", classes=1, photos=6)
    (images.parent / "more" / "class 0" / "5.jpg").rename(images / "class 3" / "added.jpg")
    changed, gone = images / "class 2" / "1.jpg", images / "class 4" / "0.jpg"
    changed.write_bytes((images / "class 5" / "2.jpg").read_bytes())
    gone.unlink()
    for out in (images.parent / "v.npy", images.parent / "v.parquet"):
        code, _, log = call("embed", run, images, "--out", out)
        assert (code, "22 of 24 images are done, 2 to do" in log) == (0, True)
        known = read_vectors(out)
        assert known.paths == find_images(images).files
        torch.testing.assert_close(
            known.vectors, embedder.encode([images / path for path in known.paths]), rtol=1e-4, atol=1e-5
        )
        assert "24 of 24 images are done, 0 to do" in call("embed", run, images, "--out", out)[2]
    assert not [path.name for path in images.parent.iterdir() if "lock" in path.name]


@pytest.mark.parametrize("changed", [-1, 2**63, 2**63 + 2**62])
def test_photos_of_any_time_are_known_again(call: Call, run: Path, images: Path, changed: int) -> None:
    photo, out = images / "class 0" / "0.jpg", images.parent / "v.parquet"
    (images / "class 0" / "bad.jpg").unlink()
    os.utime(photo, ns=(changed, changed))
    assert call("embed", run, images, "--out", out)[0] == 0
    assert "24 of 24 images are done, 0 to do" in call("embed", run, images, "--out", out)[2]
    os.utime(photo, ns=(0, 0))
    assert "23 of 24 images are done, 1 to do" in call("embed", run, images, "--out", out)[2]


@pytest.mark.skipif(os.name != "posix", reason="needs names that are no text")
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_names_that_are_no_text_are_known_again_and_found(call: Call, run: Path, tmp_path: Path, suffix: str) -> None:
    images, out = tmp_path / os.fsdecode(b"caf\xe9"), tmp_path / f"v{suffix}"
    draw_photos(images, classes=1, photos=3)
    for number in range(2):
        (images / "class 0" / f"{number}.jpg").rename(images / os.fsdecode(b"\xfc%d.jpg" % number))
    shutil.copy(images / "class 0" / "2.jpg", images / r"\udcfc0.jpg")  # as the first of them is written
    assert call("embed", run, images, "--out", out)[0] == 0
    assert "4 of 4 images are done, 0 to do" in call("embed", run, images, "--out", out)[2]
    query = images / "class 0" / "2.jpg"
    (row,) = json.loads(call("search", run, query, "--in", out, "--json", "-")[1])
    assert row["neighbors"][0]["path"] == str(images / r"\udcfc0.jpg")
    assert {near["path"] for near in row["neighbors"]} == {str(path) for path in images.glob("*.jpg")}


def test_work_that_is_still_right_is_gone_on_from_when_images_change(call: Call, run: Path, images: Path) -> None:
    out = images.parent / "v.npy"
    (images / "class 1" / "worse.jpg").touch()
    assert call("embed", run, images, "--out", out)[0] == 1
    (images / "class 1" / "worse.jpg").unlink()
    os.utime(images / "class 0" / "0.jpg", ns=(5, 5))
    code, _, log = call("embed", run, images, "--out", out)
    assert (code, len(np.load(out)), "24 of 25 images are done, 1 to do" in log) == (0, 24, True)


def test_vectors_of_another_model_size_or_folder_are_kept_and_not_mixed_in(
    call: Call, run: Path, images: Path, photos: Path
) -> None:
    out, instead = images.parent / "v.npy", "another --out, or delete the file"
    (images / "class 0" / "bad.jpg").unlink()
    assert call("embed", run, images, "--out", out)[0] == 0
    before = {path: path.read_bytes() for path in images.parent.glob("v.*")}
    for options in (["--size", 80], ["--mirror"], ["--scales", 2]):
        code, _, log = call("embed", run, images, "--out", out, *options)
        assert (code, "another model, or with another --size" in log, instead in log) == (2, True, True)
    code, _, log = call("embed", run, images, "--out", out, "--whiten")
    assert (code, "was made without --whiten" in log, instead in log) == (2, True, True)
    code, _, log = call("embed", run, photos, "--out", out)
    assert (code, f"holds vectors of the folder {images}, not of {photos}: give {instead}" in log) == (2, True)
    assert {path: path.read_bytes() for path in images.parent.glob("v.*")} == before
    out.unlink()
    assert call("embed", run, photos, "--out", out)[0] == 0
    query = photos / "class 0" / "0.jpg"
    assert call("search", run, query, "--in", out, "--out", images.parent / "s.png")[0] == 0
    for choice in (["--size", 80], ["--mirror"], ["--scales", 2]):
        code, _, log = call("search", run, query, "--in", out, *choice)
        assert (code, "another --size, --mirror, --scales or --whiten: give what it was made with" in log) == (2, True)


def test_unfinished_work_of_another_model_or_folder_is_kept(call: Call, run: Path, images: Path, photos: Path) -> None:
    out = images.parent / "v.npy"
    (images / "class 1" / "worse.jpg").touch()
    assert call("embed", run, images, "--out", out)[0] == 1  # too many cannot be read
    for words in ([photos], [images, "--mirror"]):
        code, _, log = call("embed", run, *words, "--out", out)
        assert (code, "v.npy.partial is unfinished work with another folder or model" in log) == (2, True)
    assert "26 of 26 images are done" in call("embed", run, images, "--out", out, "--allow-skipped")[2]


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_two_at_once_on_one_file_are_refused(call: Call, run: Path, images: Path, photos: Path) -> None:
    out, go_on = images.parent / "v.npy", images.parent / "go on"
    with apart(embed_and_wait, run, images, out, go_on) as first:
        wait_until((images.parent / "waiting").exists, first.is_alive)
        for folder in (images, photos):
            code, _, log = call("embed", run, folder, "--out", out)
            assert (code, "another process is writing" in log) == (2, True)
        os.kill(first.pid, signal.SIGINT)
        go_on.touch()
        first.join(PATIENCE)
        assert first.exitcode == 130
    assert call("embed", run, images, "--out", out)[0] == 0
    assert (np.abs(np.load(out)).sum(1) > 0).all()


def test_files_of_others_are_never_touched(call: Call, run: Path, photos: Path, tmp_path: Path) -> None:
    for name, content in (
        ("birds.json", '{"birds": 5}'),
        ("birds.json", "[]"),
        ("birds.npy.partial", "mine"),
        ("birds.skipped.csv", "mine"),
    ):
        (tmp_path / name).write_text(content)
        code, _, log = call("embed", run, photos, "--out", tmp_path / "birds.npy")
        assert (code, name in log, "give another --out" in log) == (2, True, True)
        assert (tmp_path / name).read_text() == content
        assert not (tmp_path / "birds.npy").exists()
        (tmp_path / name).unlink()
    for name, content in (("birds.npy", "mine"), ("birds.parquet", "mine")):
        (tmp_path / name).write_text(content)
        code, _, log = call("embed", run, photos, "--out", tmp_path / name)
        assert (code, name in log, "give another --out" in log) == (2, True, True)
        assert (tmp_path / name).read_text() == content
        (tmp_path / name).unlink()
    pq.write_table(pa.table({"bird": [5]}), tmp_path / "birds.parquet")
    assert call("embed", run, photos, "--out", tmp_path / "birds.parquet")[0] == 2
    assert pq.read_table(tmp_path / "birds.parquet").column_names == ["bird"]
    os.mkfifo(tmp_path / "birds.npy.partial")
    assert "give another --out" in call("embed", run, photos, "--out", tmp_path / "birds.npy")[2]


def test_vectors_and_names_of_different_writings_are_never_joined(
    call: Call, run: Path, images: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, query = images.parent / "v.npy", photos / "class 0" / "0.jpg"
    (images / "class 0" / "bad.jpg").unlink()
    assert call("embed", run, images, "--out", out)[0] == 0
    (images / "class 1" / "0.jpg").rename(images / "class 1" / "z.jpg")

    def killed(path: Path, *content: Any) -> None:
        if path.suffix == ".json":
            raise KeyboardInterrupt
        write_atomically(path, *content)

    with monkeypatch.context() as patch:
        patch.setattr("selftaught.vectors.write_atomically", killed)
        assert call("embed", run, images, "--out", out)[0] == 130
    code, _, log = call("search", run, query, "--in", out)
    assert (code, "does not belong to v.json" in log) == (1, True)
    code, _, log = call("embed", run, images, "--out", out)
    assert (code, "1 of 24 images are done, 23 to do" in log) == (0, True)
    assert call("search", run, query, "--in", out, "--out", images.parent / "s.png")[0] == 0


def begun(folder: Path, **changes: Any) -> VectorLog:
    about: dict[str, Any] = {"model": "m", "root": "r", "dim": 2} | changes
    return VectorLog(folder / "v.npy.partial", **about)


def known_to(log: VectorLog) -> dict[str, Known]:
    """What a log knew when it was opened."""
    return {name: known for batch in log.batches for name, known in batch.known().items()}


def batch(names: str, *failures: tuple[int, str]) -> LoggedBatch:
    """Files whose vectors are their names."""
    files: list[tuple[str, Stamp]] = [(name, (1, ord(name))) for name in names]
    readable = [ord(name) for position, name in enumerate(names) if position not in dict(failures)]
    return LoggedBatch(files, np.repeat(np.array(readable, np.float32)[:, None], 2, 1), list(failures))


def test_a_log_keeps_whole_batches_and_nothing_else(tmp_path: Path) -> None:
    log = begun(tmp_path)
    log.add(batch("abc", (1, "empty file")))
    log.add(batch("de"))
    log.close()
    file = tmp_path / "v.npy.partial"
    whole = file.read_bytes()
    first = whole.rindex(b'{"files"') - 40
    for end in range(first, len(whole)):
        file.write_bytes(whole[:end])
        again = begun(tmp_path)
        assert list(known_to(again)) == ["a", "b", "c"]
        again.close()
    again = begun(tmp_path)
    known = known_to(again)
    assert (known["b"].vector, known["b"].reason, known["c"].stamp) == (None, "empty file", (1, 99))
    assert [each.vector[0] for each in known.values() if each.vector is not None] == [ord("a"), ord("c")]
    again.close()
    for change in ({"model": "n"}, {"root": "s"}, {"dim": 3}):
        file.write_bytes(whole)
        with pytest.raises(UsageError, match="unfinished work with another folder or model"):
            begun(tmp_path, **change)
        assert file.read_bytes() == whole


def test_flipped_bits_of_a_log_are_never_used(tmp_path: Path) -> None:
    log = begun(tmp_path)
    for name in "abc":
        log.add(batch(name))
    log.close()
    file = tmp_path / "v.npy.partial"
    whole = file.read_bytes()
    for position in range(len(MAGIC), len(whole)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
        again = begun(tmp_path)
        assert len(known_to(again)) < 3
        assert all(each.vector is not None and set(each.vector) == {ord(n)} for n, each in known_to(again).items())
        again.close()
    file.write_bytes(b"X" + whole)
    with pytest.raises(UsageError, match="move it away"):
        begun(tmp_path)


def test_a_forged_record_is_dropped(tmp_path: Path) -> None:
    forged: list[dict[str, Any]] = [{"files": []}, {"files": 5, "failures": []}]
    forged.append({"files": [["a", [1, 1]]], "failures": [[9, "x"], [0, "y"]]})
    forged.append({"files": [["a", [1, 1]], ["b", [1, 1]]], "failures": [[9, "x"], [0, "y"], [0, "y"]]})
    forged.insert(0, {"files": [["a", [float("inf"), 1]]], "failures": []})
    for about in [*forged, {"files": [["a", [1, 1]], ["b", [1, 1]]], "failures": [[9, "x"]]}]:
        log = begun(tmp_path)
        log._append(about, b"\0" * (0 if about is forged[-1] else 8))
        log.close()
        again = begun(tmp_path)
        assert again.batches == []
        again.remove()


def test_a_full_disk_is_one_sentence_and_keeps_what_is_done(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    log = begun(tmp_path)
    log.add(batch("abc"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(
            SelftaughtError, match=r"cannot write .*v\.npy\.partial: File too large; what is done is kept"
        ):
            log.add(batch("d" * 3000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.close()
    assert list(known_to(begun(tmp_path))) == ["a", "b", "c"]


def test_parts_are_embedded_apart_and_read_as_one(call: Call, run: Path, images: Path, embedder: Embedder) -> None:
    (images / "class 0" / "bad.jpg").unlink()
    query, out = images / "class 0" / "0.jpg", images.parent / "v.parquet"
    for part in ("3/3", "1/3", "2/3"):
        code, _, log = call("search", run, query, "--in", out)
        assert (code, "no file" in log or "not complete" in log) == (2, True)
        assert call("embed", run, images, "--out", out, "--shard", part)[0] == 0
    known = read_vectors(out)
    assert known.paths == find_images(images).files
    torch.testing.assert_close(
        known.vectors, embedder.encode([images / path for path in known.paths]), rtol=1e-4, atol=1e-5
    )
    assert call("search", run, query, "--in", out, "--out", images.parent / "s.png")[0] == 0
    for wrong in ("0/3", "4/3", "x", "1/", "-1/2"):
        assert call("embed", run, images, f"--shard={wrong}", "--out", out)[0] == 2


def test_parts_are_not_embedded_beside_a_whole_file_that_would_be_read_instead(
    call: Call, run: Path, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "v.npy"
    assert call("embed", run, photos, "--out", out)[0] == 0
    code, _, error = call("embed", run, photos, "--out", out, "--shard", "1/2")
    assert (code, f"{out} is there already, and would be read instead of its parts" in error) == (2, True)
    assert not list(tmp_path.glob("*-of-*"))


def test_whitened_vectors_keep_the_model_they_need(call: Call, run: Path, photos: Path, tmp_path: Path) -> None:
    out, query = tmp_path / "v.npy", photos / "class 0" / "0.jpg"
    for _ in range(2):
        assert call("embed", run, photos, "--out", out, "--whiten")[0] == 0
    assert json.loads((tmp_path / "v.json").read_text())["metric"] == "cosine"
    np.testing.assert_allclose(np.linalg.norm(np.load(out), axis=1), 1, rtol=1e-5)
    assert call("search", tmp_path / "v.model", query, "--in", out, "--out", tmp_path / "s.png")[0] == 0
    for words in (["search", run, query, "--in", out], ["embed", run, photos, "--out", out]):
        code, _, log = call(*words)
        assert (code, f"its vectors are of the model in {tmp_path / 'v.model'}: give that model" in log) == (2, True)
    assert "24 of 24 images are done" in call("embed", tmp_path / "v.model", photos, "--out", out)[2]
    code, _, log = call("embed", run, photos, "--out", out, "--whiten", "--mirror")
    assert (code, "is of another model" in log) == (2, True)
    (tmp_path / "w.model").write_text("mine")
    code, _, log = call("embed", run, photos, "--out", tmp_path / "w.npy", "--whiten")
    assert (code, "w.model, but that is a file" in log) == (2, True)
    assert "embedding" not in log  # it is said before the work
    code, found, _ = call("search", run, query, "--in", photos, "--whiten", "--out", tmp_path / "s.png")
    assert (code, len(found.splitlines())) == (0, 11)


def test_processes_of_a_launcher_embed_a_part_each_and_go_on(
    call: Call, run: Path, photos: Path, tmp_path: Path
) -> None:
    words = ("embed", run, photos, "--out", tmp_path / "v.npy", "--device", "cpu")
    codes, logs = run_launched(2, tmp_path / "first", *words)
    assert codes == [0, 0], logs
    assert all(log.count("vectors of size 8 written to") == 1 for log in logs)
    assert sorted(path.name for path in tmp_path.glob("*.npy")) == ["v.1-of-2.npy", "v.2-of-2.npy"]
    assert call("embed", run, photos, "--out", tmp_path / "whole.npy")[0] == 0
    parts, whole = read_vectors(tmp_path / "v.npy"), read_vectors(tmp_path / "whole.npy")
    assert parts.paths == whole.paths
    torch.testing.assert_close(parts.vectors, whole.vectors, rtol=1e-4, atol=1e-5)
    (tmp_path / "v.2-of-2.npy").unlink()
    codes, logs = run_launched(2, tmp_path / "again", *words)
    assert codes == [0, 0], logs
    done = len(read_vectors(tmp_path / "v.1-of-2.npy").paths)
    assert f"{done} of {done} images are done, 0 to do" in logs[0]
    assert read_vectors(tmp_path / "v.npy").paths == whole.paths


def test_results_of_a_search_have_one_form_wherever_they_come_from(
    call: Call, run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert call("embed", run, "../here/../photos", "--out", "v.npy")[0] == 0
    assert "24 of 24 images are done" in call("embed", run, tmp_path / "photos", "--out", "v.npy")[2]
    query = "../photos/class 0/0.jpg"
    for within in (["../here/../photos"], ["v.npy"], ["v.npy", "--root", "../photos"]):
        code, text, _ = call("search", run, query, "--in", *within, "-k", 30, "--json", "-")
        assert code == 0
        (row,) = json.loads(text)
        assert row["query"] == str(tmp_path / "photos" / "class 0" / "0.jpg")
        told = {near["path"] for near in row["neighbors"]} | {row["query"]}
        assert told == {str(tmp_path / "photos" / f"class {c}" / f"{i}.jpg") for c in range(6) for i in range(4)}


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
