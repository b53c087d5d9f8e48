"""Heads trained on features that are computed once."""

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from several import PATIENCE, apart, in_processes
from torch import Tensor

from conftest import TINY, draw_photos
from selftaught import Embedder, train
from selftaught.console import Interrupts, Reporter
from selftaught.data import Batch, FileReader, ImageFolder, ImageReader, ViewRequest, Views, find_images, view_seed
from selftaught.errors import Interrupted, SelftaughtError
from selftaught.learners import METHODS, has_setting
from selftaught.networks import Encoder, build_backbone
from selftaught.retrieval import score
from selftaught.run_folder import FEATURES
from selftaught.training import frozen_backbone, loop
from selftaught.training.evaluation import Unreadable
from selftaught.training.frozen_backbone import KEPT_VIEWS, FeatureReader
from selftaught.training.images import RunImages
from selftaught.vector_log import LoggedBatch, VectorLog

HEADS: dict[str, Any] = TINY | {"train": "heads", "quiet": True}


class CountingSource(ImageReader):
    """A reader of images that counts what it is asked for, and notes an interrupt after so many batches."""

    def __init__(self, encoder: Encoder, interrupts: Interrupts, stop_after: int | None = None) -> None:
        p = encoder.preprocessing
        self.reader, self.interrupts, self.stop_after = (
            FileReader(Views(p.size, p.resize, p.squash)),
            interrupts,
            stop_after,
        )
        self.asked: list[ViewRequest] = []
        self.batches = 0

    def read(self, batches: Iterable[list[ViewRequest]]) -> Iterator[Batch]:
        for batch in batches:
            self.asked += batch
            self.batches += 1
            self.interrupts.asked = self.batches == self.stop_after
            yield from self.reader.read([batch])

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:
        self.reader.prepare(images, labeled)

    def close(self) -> None:
        self.reader.close()


@pytest.fixture
def encoder() -> Encoder:
    return make_encoder()


def make_encoder() -> Encoder:
    torch.manual_seed(0)
    backbone = build_backbone("small")
    return Encoder(backbone.module, backbone.preprocessing).requires_grad_(False)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_backbone, "BLOCK", 5)


def reader_of(
    encoder: Encoder, images: ImageFolder, run: Path, stop_after: int | None = None
) -> tuple[FeatureReader, CountingSource]:
    run.mkdir(exist_ok=True)
    interrupts = Interrupts()
    source = CountingSource(encoder, interrupts, stop_after)
    reader = FeatureReader(
        source, encoder, run, RunImages(images, None, images), 0, torch.device("cpu"), Reporter(quiet=True), interrupts
    )
    return reader, source


def ask(reader: FeatureReader, images: ImageFolder, view: Any, seed: int = 0) -> Tensor:
    (batch,) = reader.read([[ViewRequest(images.path(i), view, seed) for i in range(len(images))]])
    assert batch.positions == list(range(len(images)))
    assert not batch.failures
    return batch.images


def test_kept_features_are_those_of_the_encoder_in_eval_mode(photos: Path, tmp_path: Path, encoder: Encoder) -> None:
    images = find_images(photos)
    reader, source = reader_of(encoder.train(), images, tmp_path)
    found = {view: ask(reader, images, view) for view in ("squash", "center", "random")}
    assert encoder.training
    encoder.eval()
    for view in ("squash", "center"):
        views = next(source.reader.read([[ViewRequest(images.path(i), view) for i in range(len(images))]]))
        torch.testing.assert_close(found[view], encoder(views.images[:, 0])[:, None], rtol=1e-4, atol=1e-5)
    looks = [[ViewRequest(images.path(0), "random", view_seed(0, 0, look))] for look in range(KEPT_VIEWS // 2)]
    all_views = encoder(torch.cat([batch.images[0] for batch in source.reader.read(looks)]))
    assert all((row - all_views).norm(dim=1).min() < 1e-4 for row in found["random"][0])
    assert found["random"].shape == (24, 2, encoder.features)


def test_features_pass_an_encoder_unchanged(encoder: Encoder) -> None:
    rows = torch.randn(3, encoder.features)
    assert encoder(rows) is rows


def test_two_random_views_differ_and_are_decided_by_the_seed(photos: Path, tmp_path: Path, encoder: Encoder) -> None:
    images = find_images(photos)
    reader, _ = reader_of(encoder, images, tmp_path)
    pairs = [ask(reader, images, "random", seed) for seed in range(20)]
    assert all(bool((pair[:, 0] != pair[:, 1]).any(1).all()) for pair in pairs)
    assert torch.equal(pairs[3], ask(reader, images, "random", 3))
    assert len({tuple(row.tolist()) for pair in pairs for row in pair[0]}) == KEPT_VIEWS, "all of them are used"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("stop_after", [2, 7, 12])
def test_interrupted_features_are_gone_on_with(photos: Path, tmp_path: Path, encoder: Encoder, stop_after: int) -> None:
    images = find_images(photos)
    calm, whole = reader_of(encoder, images, tmp_path / "calm")
    expected = ask(calm, images, "random")
    stopped, first = reader_of(encoder, images, tmp_path / "stopped", stop_after)
    with pytest.raises(Interrupted):
        ask(stopped, images, "random")
    resumed, second = reader_of(encoder, images, tmp_path / "stopped")
    assert torch.equal(ask(resumed, images, "random"), expected)
    again = len(first.asked) + len(second.asked) - len(whole.asked)
    assert again == 0, "the block that was under way is finished"
    assert len(whole.asked) == len(images) * (2 + KEPT_VIEWS // 2)
    third, nothing = reader_of(encoder, images, tmp_path / "stopped")
    assert torch.equal(ask(third, images, "random"), expected)
    assert not nothing.asked


def test_features_of_other_weights_or_other_files_are_not_taken(photos: Path, tmp_path: Path, encoder: Encoder) -> None:
    images = find_images(photos)
    ask(reader_of(encoder, images, tmp_path)[0], images, "squash")
    fewer = images.only(images.files[1:])
    reader, source = reader_of(encoder, fewer, tmp_path)
    ask(reader, fewer, "squash")
    assert len(source.asked) == 23 * (2 + KEPT_VIEWS // 2)
    next(encoder.parameters()).data[0] += 1
    reader, source = reader_of(encoder, images, tmp_path)
    ask(reader, images, "squash")
    assert len(source.asked) == 24 * (2 + KEPT_VIEWS // 2)


def test_features_of_a_file_that_has_changed_are_not_taken(tmp_path: Path, encoder: Encoder) -> None:
    images = find_images(draw_photos(tmp_path / "photos", classes=4, photos=4))
    before = ask(reader_of(encoder, images, tmp_path)[0], images, "squash")
    shutil.copy(images.path(9), images.path(3))
    after = ask(reader_of(encoder, images, tmp_path)[0], images, "squash")
    assert torch.equal(after[3], after[9])
    assert not torch.equal(after[3], before[3])


def test_a_damaged_file_of_features_is_made_again(photos: Path, tmp_path: Path, encoder: Encoder) -> None:
    images = find_images(photos)
    expected = ask(reader_of(encoder, images, tmp_path)[0], images, "squash")
    (file,) = (tmp_path / FEATURES).glob("squash-*.log")
    whole = file.read_bytes()
    for damaged in (whole[:1000], whole[:-1000] + bytes(1000), b"", b"mine"):
        file.write_bytes(damaged)
        reader, source = reader_of(encoder, images, tmp_path)
        assert torch.equal(ask(reader, images, "squash"), expected)
        assert [request.view for request in source.asked] == ["squash"] * len(images)
        for made in set((tmp_path / FEATURES).glob("squash-*.log")) - {file}:
            made.unlink()


def compute_in_blocks(photos: Path, run: Path) -> tuple[list[Tensor], int]:
    """The features of all views in blocks of 5 images, and how many views this process has computed."""
    patch, images = pytest.MonkeyPatch(), find_images(photos)
    patch.setattr(frozen_backbone, "BLOCK", 5)
    reader, source = reader_of(make_encoder(), images, run)
    return [ask(reader, images, view) for view in ("squash", "center", "random")], len(source.asked)


def test_several_processes_share_the_work_and_give_the_features_of_one(photos: Path, tmp_path: Path) -> None:
    ((expected, asked),) = in_processes(1, tmp_path / "alone", compute_in_blocks, photos, tmp_path / "one")
    for attempt, run in enumerate([tmp_path / "two"] * 2):
        results = in_processes(2, tmp_path / str(attempt), compute_in_blocks, photos, run)
        assert all(torch.equal(one, other) for found, _ in results for one, other in zip(found, expected, strict=True))
        parts = [part for _, part in results]
        assert (sum(parts), min(parts) > 0) == ((asked, True) if not attempt else (0, False))


@pytest.mark.usefixtures("small_blocks")
def test_only_what_is_behind_the_damage_is_computed_again(photos: Path, tmp_path: Path, encoder: Encoder) -> None:
    images = find_images(photos)
    expected = ask(reader_of(encoder, images, tmp_path)[0], images, "squash")
    (file,) = (tmp_path / FEATURES).glob("squash-*.log")
    content = bytearray(file.read_bytes())
    content[content.rindex(b'{"files"') + 1000] ^= 1
    file.write_bytes(content)
    reader, source = reader_of(encoder, images, tmp_path)
    assert torch.equal(ask(reader, images, "squash"), expected)
    assert [request.path for request in source.asked] == images.paths()[20:]


@pytest.mark.usefixtures("small_blocks")
def test_all_unreadable_images_are_named_before_the_random_views(tmp_path: Path, encoder: Encoder) -> None:
    images = find_images(draw_photos(tmp_path / "photos", classes=4, photos=4))
    for victim in (4, 5, 13):
        Path(images.path(victim)).write_text("no image")
    reader, source = reader_of(encoder, images, tmp_path)
    with pytest.raises(Unreadable, match=r"class 1/0.jpg") as stopped:
        ask(reader, images, "squash")
    assert [skipped.path for skipped in stopped.value.skipped] == [images.files[i] for i in (4, 5, 13)]
    assert stopped.value.images is images
    assert {request.view for request in source.asked} == {"squash"}


def test_unreadable_images_are_left_out_of_training(tmp_path: Path) -> None:
    photos = draw_photos(tmp_path / "photos", classes=6, photos=4)
    (photos / "class 0" / "0.jpg").write_text("no image")
    train(photos, out=tmp_path / "run", eval=photos, epochs=1, **HEADS)
    assert "class 0/0.jpg" in (tmp_path / "run" / "skipped.csv").read_text()
    assert not (tmp_path / "run" / FEATURES).exists()


def test_a_full_disk_is_told_in_one_sentence(photos: Path, tmp_path: Path, encoder: Encoder) -> None:
    images = find_images(photos)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        with pytest.raises(SelftaughtError, match=r"squash-.*\.log: File too large; .* kept, so fix that$"):
            ask(reader_of(encoder, images, tmp_path)[0], images, "squash")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_only_the_heads_learn_and_the_features_are_deleted(photos: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "start", epochs=0, **HEADS)
    model = train(photos, out=tmp_path / "run", epochs=2, **HEADS)
    start, end = (load_file(tmp_path / name / "model.safetensors") for name in ("start", "run"))
    assert {name for name in end if not torch.equal(start[name], end[name])} == {"heads.f.weight", "heads.f.bias"}
    assert not any(parameter.requires_grad for parameter in model.network.encoder.parameters())
    assert not (tmp_path / "run" / FEATURES).exists()
    teacher = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["learner"]
    names = [name for name in end if name.startswith("encoder.")]
    assert all(torch.equal(teacher[f"teacher.{name}"], end[name]) for name in names)


def test_the_finished_model_scores_as_measured_in_training(photos: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "run", eval=photos, epochs=2, **HEADS)
    images = find_images(photos)
    vectors, _ = Embedder.load(tmp_path / "run").encoding.encode_files(images.paths())
    measured = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    scores = score(vectors, images.classes(), (1, 2, 4, 8, 10, 100)).row()
    assert scores == pytest.approx({name: measured[name] for name in scores})


def test_a_finished_run_can_be_resumed_without_computing_features(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(photos, out=tmp_path / "run", epochs=1, **HEADS)
    monkeypatch.setattr(FeatureReader, "_compute", None)
    train(resume=tmp_path / "run", quiet=True)


@pytest.mark.parametrize("lost", [False, True])
def test_an_interrupted_run_goes_on_to_the_same_bits(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Also if someone has deleted the features."""
    train(photos, out=tmp_path / "calm", epochs=2, eval=photos, **HEADS)
    steps, real = 0, loop.Loop._step

    def counted(self: loop.Loop, *given: Any) -> Any:
        nonlocal steps
        steps += 1
        self.parts.context.interrupts.asked = steps == 4
        return real(self, *given)

    monkeypatch.setattr(loop.Loop, "_step", counted)
    with pytest.raises(Interrupted, match="selftaught train --resume"):
        train(photos, out=tmp_path / "run", epochs=2, eval=photos, **HEADS)
    assert (tmp_path / "run" / FEATURES).is_dir()
    if lost:
        shutil.rmtree(tmp_path / "run" / FEATURES)
    else:
        monkeypatch.setattr(FeatureReader, "_encode", None)
    train(resume=tmp_path / "run", quiet=True)
    assert steps == 6
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes(), name


def test_an_interrupt_while_features_are_computed_says_how_to_go_on(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = FeatureReader._encode

    def interrupting(self: FeatureReader, images: Tensor) -> dict[str, Tensor]:
        self.interrupts.asked = True
        return encode(self, images)

    with monkeypatch.context() as patch:
        patch.setattr(FeatureReader, "_encode", interrupting)
        with pytest.raises(Interrupted, match="selftaught train --resume"):
            train(photos, out=tmp_path / "run", epochs=1, **HEADS)
    train(resume=tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "model.json").exists()


def learn_and_die(photos: Path, run: Path) -> None:
    """A run that is killed when two blocks of the random views' features are written."""
    patch = pytest.MonkeyPatch()
    patch.setattr(frozen_backbone, "BLOCK", 5)
    add, added = VectorLog.add, 0

    def add_or_die(log: VectorLog, batch: LoggedBatch) -> None:
        nonlocal added
        add(log, batch)
        added += log.path.name.startswith("random-")
        if added == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    patch.setattr(VectorLog, "add", add_or_die)
    train(photos, out=run, epochs=1, **HEADS)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_run_killed_while_features_are_computed_ends_with_the_same_bits(photos: Path, tmp_path: Path) -> None:
    run = tmp_path / "killed"
    with apart(learn_and_die, photos, run) as process:
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
    assert [file.read_bytes().count(b'{"files"') for file in run.glob(f"{FEATURES}/random-*.log")] == [2]
    train(resume=run, quiet=True)
    train(photos, out=tmp_path / "calm", epochs=1, **HEADS)
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "calm" / "model.safetensors").read_bytes()
    assert not (run / FEATURES).exists()


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("stml", "slade", "abe")])
def test_other_methods_train_their_heads(photos: Path, tmp_path: Path, method: str) -> None:
    options: dict[str, Any] = {"clusters": 4} if has_setting(method, "clusters") else {}
    model = train(photos, out=tmp_path / "run", method=method, epochs=1, snapshots=1, **options, **HEADS)
    assert torch.isfinite(model.encode([sorted(photos.rglob("*.jpg"))[0]])).all()


@pytest.mark.parametrize("method", ["stml", "slade"])
def test_semi_supervised_training_of_the_heads(photos: Path, tmp_path: Path, method: str) -> None:
    for part, names in (("labeled", ("class 0", "class 1", "class 2")), ("more", ("class 3", "class 4", "class 5"))):
        for name in names:
            shutil.copytree(photos / name, tmp_path / part / name)
    options = HEADS | {"epochs": 1, "supervised_epochs": 1, "method": method}
    train(labeled=tmp_path / "labeled", unlabeled=tmp_path / "more", out=tmp_path / "run", **options)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("run/supervised", "run"))
    assert {name for name in first if not torch.equal(first[name], second[name])} <= {"heads.f.weight", "heads.f.bias"}
