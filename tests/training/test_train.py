import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from conftest import TINY, Call, draw_photos, note_calls
from selftaught import Embedder, train
from selftaught.data import ImageFolder, View, find_images
from selftaught.errors import Collapse, Interrupted, SelftaughtError, UsageError
from selftaught.learners import STML
from selftaught.networks import Preprocessing
from selftaught.run_folder import PARTIAL, read_record
from selftaught.training import assemble, checkpoint, loop
from selftaught.training.evaluation import Evaluation
from selftaught.training.gradient_parts import RecordedBackward


def rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Press Ctrl-C during one step; returns the images of every step there was."""
    steps: list[Tensor] = []
    real = loop.Loop._step

    def counted(self: loop.Loop, images: Tensor, indices: Tensor) -> Tensor:
        steps.append(indices)
        self.parts.context.interrupts.asked = len(steps) == step
        return real(self, images, indices)

    monkeypatch.setattr(loop.Loop, "_step", counted)
    return steps


def test_a_run_folder_holds_model_settings_metrics_and_curves(run: Path) -> None:
    for name in ("model.safetensors", "model.json", "settings.json", "metrics.jsonl", "curves.png", "checkpoint.pt"):
        assert (run / name).stat().st_size > 0
    assert not list(run.glob(".*.tmp"))
    names = {"loss", "contrastive", "distillation", "effective_rank", "view_agreement", "recall@1"}
    assert [row["epoch"] for row in rows(run)] == [1, 2]
    assert all(names <= row.keys() for row in rows(run))
    description = json.loads((run / "model.json").read_text())
    assert (description["backbone"], description["dim"], description["metric"]) == ("small", 8, "euclidean")
    assert description["preprocessing"]["size"] == 32
    saved = json.loads((run / "settings.json").read_text())
    assert all(saved["reasons"].values())
    with Image.open(run / "curves.png") as picture:
        assert picture.width > 500


def test_equal_seeds_give_equal_runs_and_other_seeds_others(photos: Path, run: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "same", epochs=2, eval=photos, quiet=True, **TINY)
    assert (tmp_path / "same" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert (tmp_path / "same" / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    train(photos, out=tmp_path / "other", epochs=2, seed=1, quiet=True, **TINY)
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != (run / "model.safetensors").read_bytes()


def test_labels_are_never_trained_on(photos: Path, run: Path, tmp_path: Path) -> None:
    """The same images under other class folders, and no evaluation: the same weights."""
    for i, file in enumerate(sorted(photos.rglob("*.jpg"))):
        place = tmp_path / "flat" / f"{i:03d}"
        place.mkdir(parents=True)
        shutil.copy(file, place / "x.jpg")
    train(tmp_path / "flat", out=tmp_path / "run", epochs=2, quiet=True, **TINY)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_worker_processes_change_nothing(photos: Path, run: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "run", epochs=2, quiet=True, **(TINY | {"workers": 2}))
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_learning_moves_the_weights_and_zero_epochs_do_not(photos: Path, run: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "start", epochs=0, quiet=True, **TINY)
    start, end = load_file(tmp_path / "start" / "model.safetensors"), load_file(run / "model.safetensors")
    assert all(not torch.equal(start[name], end[name]) for name in start if name.endswith("weight"))


def test_frozen_batch_norm_stays_as_it_was_in_training_while_the_rest_learns(photos: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = TINY | {"freeze_batch_norm": True, "quiet": True}
    start, end = (train(photos, out=tmp_path / str(n), epochs=n, **options).network.encoder for n in (0, 1))
    learned = {name for name, tensor in start.state_dict().items() if not torch.equal(tensor, end.state_dict()[name])}
    convolutions = {f"{name}.weight" for name, part in end.named_modules() if isinstance(part, nn.Conv2d)}
    assert learned == convolutions, "no scale, shift or statistics of batch norm"


def test_an_interrupted_run_goes_on_where_it_stopped(
    photos: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = interrupt_at(4, monkeypatch)
    with pytest.raises(Interrupted, match="selftaught train --resume"):
        train(photos, out=tmp_path / "run", epochs=2, eval=photos, quiet=True, **TINY)
    assert (tmp_path / "run" / PARTIAL).exists()
    train(resume=tmp_path / "run", quiet=True)
    assert len(steps) == 6, "three steps an epoch, none of them twice"
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    assert not (tmp_path / "run" / PARTIAL).exists()


def test_a_network_that_draws_random_numbers_resumes_to_the_same_bits(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dropping() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Dropout(0.3))

    options: dict[str, Any] = TINY | {"backbone": None, "quiet": True}
    train(photos, out=tmp_path / "calm", **(options | {"backbone": dropping(), "workers": 1}), epochs=2)
    interrupt_at(4, monkeypatch)
    with pytest.raises(Interrupted):
        train(photos, out=tmp_path / "run", **(options | {"backbone": dropping()}), epochs=2)
    train(resume=tmp_path / "run", backbone=dropping(), quiet=True)
    calm, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("calm", "run"))
    assert all(torch.equal(calm[name], resumed[name]) for name in calm)


@pytest.mark.gpu
def test_a_compiled_run_in_parts_resumes_to_the_same_weights(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = TINY | {"freeze_batch_norm": True, "epochs": 2, "quiet": True, "device": "cuda"}
    options |= {"compile": True, "rows_at_once": TINY["batch_size"] // 2}
    recorded, real = [], RecordedBackward.__call__

    def noted(self: RecordedBackward, *given: Any) -> None:
        real(self, *given)
        recorded.append(self.graph is not None)

    monkeypatch.setattr(RecordedBackward, "__call__", noted)
    calm = train(photos, out=tmp_path / "calm", **options).network.state_dict()
    interrupt_at(4, monkeypatch)
    with pytest.raises(Interrupted):
        train(photos, out=tmp_path / "run", **options)
    resumed = train(resume=tmp_path / "run", quiet=True).network.state_dict()
    assert recorded == [True] * 12
    # Sums on a GPU have no fixed order, and where a gradient is nearly 0, AdamP takes a whole step for its rounding.
    apart = [~torch.isclose(resumed[name], tensor, rtol=1e-2, atol=1e-4) for name, tensor in calm.items()]
    assert sum(map(torch.sum, apart)) <= 1e-4 * sum(map(torch.numel, apart))


def test_a_finished_run_that_is_resumed_says_so_and_measures_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, tmp_path / "run")
    monkeypatch.setattr("selftaught.training.stage.assemble", None)
    assert train(resume=tmp_path / "run").identity == Embedder.load(run).identity
    (said,) = capsys.readouterr().err.splitlines()
    assert said == f"finished: the model is in {tmp_path / 'run'}; --epochs with a larger number goes on"
    monkeypatch.undo()
    (tmp_path / "run" / "model.safetensors").unlink()
    train(resume=tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


@pytest.mark.parametrize("out", [None, ""])
def test_a_run_needs_a_folder_with_a_name(photos: Path, out: str | None) -> None:
    with pytest.raises(UsageError, match="an --out folder for the run"):
        train(photos, out=out, quiet=True, **TINY)


def test_resuming_refuses_other_settings(run: Path, photos: Path) -> None:
    changes: list[dict[str, Any]] = [{"neighbors": 5}, {"lr": 0.1}, {"out": "x"}, {"images": photos}, {"eval": photos}]
    changes += [{"recipe": "paper"}, {"tensorboard": True}]
    for change in changes:
        with pytest.raises(UsageError, match="a resumed run keeps"):
            train(resume=run, quiet=True, **change)


def test_collapse_stops_with_advice_and_keeps_the_last_good_state(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(Collapse, match=r"training collapsed in epoch \d+: .*; try a lower --lr .* or head_lr"):
        train(photos, out=tmp_path / "run", epochs=30, quiet=True, lr=1e6, head_lr=1e5, **TINY)
    good = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert all(torch.isfinite(t).all() for t in good["learner"].values())
    assert torch.isfinite(Embedder.load(tmp_path / "run").encode([Image.new("RGB", (9, 9))])).all()
    assert not (tmp_path / "run" / PARTIAL).exists()
    assert (tmp_path / "run" / "curves.png").exists()


def test_a_run_that_another_process_works_on_is_left_alone(run: Path) -> None:
    hold = (
        "import sys, pathlib\nfrom selftaught.files import lock_folder\n"
        "with lock_folder(pathlib.Path(sys.argv[1])):\n print('held', flush=True)\n input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
        with pytest.raises(UsageError, match="another process is at work in"):
            train(resume=run, quiet=True)
        assert before == {path: path.stat().st_mtime_ns for path in run.iterdir()}
        other.communicate("\n")
    record = read_record(run)
    train(resume=run, quiet=True)
    again = read_record(run)
    assert (again.requested, again.settings) == (record.requested, record.settings)


def test_a_vanished_image_stops_with_its_name_and_training_goes_on_when_it_is_back(tmp_path: Path) -> None:
    """Where files are read anew for every view; decoded images that are kept need no file."""
    photos = draw_photos(tmp_path / "photos", classes=6, photos=4)
    settings: dict[str, Any] = {"epochs": 2, "eval": photos, "quiet": True, "input": "files", **TINY}
    train(photos, out=tmp_path / "whole", **settings)
    victim = photos / "class 3" / "2.jpg"
    content = victim.read_bytes()
    steps = 0
    real = loop.Loop._step

    def lose(self: loop.Loop, images: Tensor, indices: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        if steps == 3:
            victim.unlink()
        return real(self, images, indices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Loop, "_step", lose)
        with pytest.raises(SelftaughtError, match=r"class 3/2.jpg could be read before .* --resume"):
            train(photos, out=tmp_path / "run", **settings)
    with pytest.raises(SelftaughtError, match="1 of the run's 24 images missing"):
        train(resume=tmp_path / "run", quiet=True)
    victim.write_bytes(content)
    train(resume=tmp_path / "run", quiet=True)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert models[0] == models[1]


def test_unreadable_images_are_skipped_listed_and_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = draw_photos(tmp_path / "photos", classes=6, photos=4)
    (photos / "class 0" / "new\nline.jpg").write_text("no image")
    train(photos, out=tmp_path / "run", epochs=0, **TINY)
    told = capsys.readouterr().err
    assert "25 images in" in told
    assert "24 images in" in told
    assert told.count("  crop ") == 1  # what has not changed is not told again
    assert "not an image" in (tmp_path / "run" / "skipped.csv").read_text()
    (photos / "class 0" / "empty.png").touch()
    with pytest.raises(SelftaughtError, match=r"2 of 26 images .* --allow-skipped"):
        train(photos, out=tmp_path / "strict", epochs=0, quiet=True, **TINY)
    train(photos, out=tmp_path / "strict", epochs=0, quiet=True, allow_skipped=True, **TINY)
    assert (tmp_path / "strict" / "model.json").exists()


def test_copies_of_one_photo_are_noticed(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photo = next(photos.rglob("*.jpg"))
    (tmp_path / "same").mkdir()
    for number in range(12):
        shutil.copy(photo, tmp_path / "same" / f"{number}.jpg")
    told = []
    for folder in (tmp_path / "same", photos):
        train(folder, out=tmp_path / f"run of {folder.name}", epochs=1, **TINY)
        told.append(capsys.readouterr().err.count("are they copies of one photo?"))
    assert told == [1, 0]


def test_a_backbone_of_your_own_is_trained_saved_and_resumed(photos: Path, tmp_path: Path) -> None:
    def own() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU())

    inputs = Preprocessing(size=48, mean=(104, 117, 128), std=(1, 1, 1), channels="BGR", value_range=255)
    options = {name: value for name, value in TINY.items() if name != "backbone"}
    model = train(photos, out=tmp_path / "run", backbone=own(), preprocessing=inputs, epochs=1, quiet=True, **options)
    image = Image.open(next(photos.rglob("*.jpg")))
    loaded = Embedder.load(tmp_path / "run", backbone=own())
    assert loaded.preprocessing == inputs
    torch.testing.assert_close(loaded.encode([image]), model.encode([image]), rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="backbone of your own"):
        Embedder.load(tmp_path / "run")
    with pytest.raises(UsageError, match="backbone of your own"):
        train(resume=tmp_path / "run", quiet=True)
    train(resume=tmp_path / "run", backbone=own(), quiet=True)


def test_a_backbone_must_be_a_name_or_a_module(photos: Path, run: Path, tmp_path: Path) -> None:
    wrong: Any = nn.Identity
    with pytest.raises(UsageError, match="a name or a module"):
        train(photos, out=tmp_path / "run", backbone=wrong, quiet=True)
    with pytest.raises(UsageError, match="backbone by name"):
        train(resume=run, backbone=nn.Identity(), quiet=True)


def test_an_output_folder_in_use_or_not_writable_is_refused_before_any_work(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for out in ("used", "file", "file/below"):
        with pytest.raises(UsageError, match="the run folder"):
            train(photos, out=tmp_path / out, quiet=True, **TINY)
    assert (tmp_path / "used" / "file").read_text() == "mine"


def test_a_refused_folder_keeps_everything_in_it(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "skipped.csv").write_text("mine")
    (tmp_path / "other").write_text("mine")
    with pytest.raises(UsageError, match="the run folder"):
        train(photos, out=tmp_path, quiet=True, **TINY)
    assert (tmp_path / "skipped.csv").read_text() == "mine"


def test_a_failed_resume_can_be_tried_again(photos: Path, run: Path, tmp_path: Path) -> None:
    """Killed before the first checkpoint, then resumed while the images are out of reach."""
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "run").mkdir()
    saved = json.loads((run / "settings.json").read_text()) | {"images": str(tmp_path / "photos")}
    (tmp_path / "run" / "settings.json").write_text(json.dumps(saved))
    (tmp_path / "photos").rename(tmp_path / "away")
    with pytest.raises(UsageError, match="there is no folder"):
        train(resume=tmp_path / "run", quiet=True)
    (tmp_path / "away").rename(tmp_path / "photos")
    train(resume=tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_a_failed_start_leaves_nothing_behind_and_the_folder_free_for_the_next_try(
    photos: Path, tmp_path: Path
) -> None:
    for change, message in (({"batch_size": 48}, "batch size"), ({"backbone": "smal"}, "did you mean 'small'")):
        with pytest.raises(UsageError, match=message):
            train(photos, out=tmp_path / "run", quiet=True, **(TINY | change))
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "run").mkdir()
    with pytest.raises(UsageError, match="batch size"):
        train(photos, out=tmp_path / "run", quiet=True, **(TINY | {"batch_size": 48}))
    assert (tmp_path / "run").is_dir(), "the caller's own folder stays"
    train(photos, out=tmp_path / "run", epochs=0, quiet=True, **TINY)


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
def test_a_full_disk_is_said_in_one_line_and_the_checkpoint_survives(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    file = tmp_path / "run" / "checkpoint.pt"
    before = file.read_bytes()
    loaded = checkpoint.load_checkpoint(tmp_path / "run")
    assert loaded is not None
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        with pytest.raises(SelftaughtError, match=r"cannot write .*checkpoint.pt: File too large") as caught:
            checkpoint.save_checkpoint(file, loaded.parts, loaded.state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == before
    assert not list(file.parent.glob(".*.tmp"))


def test_eval_images_are_checked_as_training_images_are(photos: Path, tmp_path: Path) -> None:
    labeled = draw_photos(tmp_path / "labeled", classes=6, photos=4)
    (labeled / "class 0" / "bad.jpg").write_text("no")
    train(photos, out=tmp_path / "run", eval=labeled, epochs=1, quiet=True, **TINY)
    assert "class 0/bad.jpg" in (tmp_path / "run" / "skipped.csv").read_text()
    (labeled / "class 0" / "worse.jpg").write_text("no")
    with pytest.raises(SelftaughtError, match=r"2 of 26 images in .*labeled"):
        train(photos, out=tmp_path / "strict", eval=labeled, epochs=1, quiet=True, **TINY)
    lonely = draw_photos(tmp_path / "lonely", classes=3, photos=1)
    with pytest.raises(SelftaughtError, match="no class has two images"):
        train(photos, out=tmp_path / "lone", eval=lonely, epochs=1, quiet=True, **TINY)


def test_classes_to_measure_on_are_named_by_a_level_or_a_table(photos: Path, tmp_path: Path, call: Call) -> None:
    """Two kinds of two things each; the table says what the kinds are."""
    for i, file in enumerate(sorted(photos.rglob("*.jpg"))[:16]):
        place = tmp_path / "test" / f"kind {i // 8}" / f"thing {i // 4}"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place / f"{i}.jpg")
    files = [file.relative_to(tmp_path / "test") for file in sorted((tmp_path / "test").rglob("*.jpg"))]
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n" + "".join(f"{file},{file.parts[0]}\n" for file in files))
    words = ["--epochs", 0, "--backbone", "small", "--neighbors", 2, "--dim", 4, "--no-report"]
    words += ["--eval", tmp_path / "test"]
    scores = {}
    options: dict[str, list[object]] = {"leaf": [], "top": ["--level", "top"], "table": ["--labels", table]}
    for name, more in options.items():
        code, _, told = call("train", photos, "--out", tmp_path / name, *words, *more)
        assert code == 0, told
        scores[name] = json.loads((tmp_path / name / "start.json").read_text())["map@r"]
    assert scores["leaf"] != scores["top"] == scores["table"]
    train(resume=tmp_path / "top", epochs=1, quiet=True)
    assert json.loads((tmp_path / "top" / "settings.json").read_text())["eval_level"] == "top"
    code, _, told = call("train", photos, "--out", tmp_path / "none", "--level", "top")
    assert (code, "give --eval too" in told) == (2, True)


def test_damaged_and_foreign_checkpoints_are_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "cut")
    content = (run / "checkpoint.pt").read_bytes()
    (tmp_path / "cut" / "checkpoint.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(SelftaughtError, match="damaged"):
        train(resume=tmp_path / "cut", quiet=True)
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    torch.save(state | {"format": 99}, tmp_path / "cut" / "checkpoint.pt")
    with pytest.raises(SelftaughtError, match="format 99"):
        train(resume=tmp_path / "cut", quiet=True)
    del state["optimizer"]["state"][1]
    torch.save(state, tmp_path / "cut" / "checkpoint.pt")
    with pytest.raises(SelftaughtError, match=r"checkpoint\.pt is damaged"):
        train(resume=tmp_path / "cut", quiet=True)
    with pytest.raises(UsageError, match="no run to resume"):
        train(resume=tmp_path, quiet=True)
    saved = json.loads((run / "settings.json").read_text())
    del saved["images"]
    for text in ("{", "{}", json.dumps(saved)):
        (tmp_path / "cut" / "settings.json").write_text(text)
        with pytest.raises(SelftaughtError, match="damaged"):
            train(resume=tmp_path / "cut", quiet=True)


def test_tensorboard_gets_every_epoch(photos: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "run", epochs=2, tensorboard=True, quiet=True, **TINY)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2]
    train(resume=tmp_path / "run", quiet=True)
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2], "nothing is logged twice"


def test_unreadable_images_do_not_repeat_the_first_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = draw_photos(tmp_path / "photos", classes=6, photos=4)
    (photos / "class 2" / "bad.jpg").write_text("no image")
    labeled = draw_photos(tmp_path / "labeled", classes=6, photos=4)
    (labeled / "class 1" / "bad.jpg").write_text("no image")
    decoded = note_calls(monkeypatch, "selftaught.data.file_reader", "open_image")
    train(photos, out=tmp_path / "run", eval=labeled, epochs=0, quiet=True, input="files", **TINY)
    once = [name for name in decoded if name.startswith(str(labeled))]
    assert len(once) == len(set(once)) == 25
    training = [name for name in decoded if name.startswith(str(photos))]
    assert len(training) == 25 + 24, "all of them whole, and those that can be read as two views"
    assert (tmp_path / "run" / "skipped.csv").read_text().count("bad.jpg") == 2


def test_every_folder_is_walked_once(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked = note_calls(monkeypatch, "selftaught.data.sources", "find_images")
    train(photos, out=tmp_path / "run", epochs=0, quiet=True, **TINY)
    assert walked == [str(photos)]


def test_a_reader_that_the_system_ends_says_how_to_go_on(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loop.Loop._step

    def kill(self: loop.Loop, images: Tensor, indices: Tensor) -> Tensor:
        for reader in multiprocessing.active_children():
            reader.kill()
            reader.join()
        return real(self, images, indices)

    options = TINY | {"workers": 1, "input": "files", "batch_size": 4, "epochs": 2, "quiet": True}
    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "_step", kill)
        with pytest.raises(SelftaughtError, match=r"process that reads images.* go on with: selftaught train --resume"):
            train(photos, out=tmp_path / "run", **options)
    train(resume=tmp_path / "run", workers=0, quiet=True)


def test_a_signal_while_a_run_is_set_up_stops_at_once_and_leaves_its_folder_free(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal went unheard")

    with monkeypatch.context() as patch:
        patch.setattr(assemble, "build_backbone", interrupted)
        with pytest.raises(Interrupted, match="stopped before training began: start it again"):
            train(photos, out=tmp_path / "run", quiet=True, **TINY)
    train(photos, out=tmp_path / "run", epochs=0, quiet=True, **TINY)


def test_training_from_python_leaves_the_allocator_of_the_process_alone(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.setattr(import_module("selftaught.cli.main"), "ctypes", SimpleNamespace(CDLL=called.append))
    train(photos, out=tmp_path / "run", epochs=0, quiet=True, **TINY)
    assert called == []


@pytest.mark.parametrize(("batches", "views"), [("neighbors", ["squash"]), ("whitened", ["squash", "center"])])
def test_batches_are_made_from_the_views_that_the_method_asks_for(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: str, views: list[str]
) -> None:
    looked: list[str] = []
    look = Evaluation.training_set

    def spy(self: Evaluation, images: ImageFolder, view: View = "squash") -> dict[str, Tensor]:
        looked.append(view)
        return look(self, images, view)

    monkeypatch.setattr(Evaluation, "training_set", spy)
    train(photos, out=tmp_path / "run", epochs=2, quiet=True, batches=batches, **TINY)
    assert looked == [*views, *views, "squash"]  # after the last epoch there are no batches to make


def test_images_of_one_name_in_two_folders_are_not_taken_for_each_other(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first pass over all images is kept until it is known which can be read."""
    other = draw_photos(tmp_path / "other", classes=7, photos=5)
    assert set(find_images(photos).files) < set(find_images(other).files)
    placed: list[Tensor] = []

    def place(_: STML, embeddings: Tensor) -> Tensor:
        placed.append(embeddings)
        return embeddings

    monkeypatch.setattr(STML, "place", place)
    for number, labeled in enumerate([None, other]):
        train(photos, out=tmp_path / str(number), eval=labeled, epochs=0, quiet=True, batches="whitened", **TINY)
    whole, center, whole_again, center_again = placed
    assert torch.equal(whole, whole_again)
    assert torch.equal(center, center_again)
