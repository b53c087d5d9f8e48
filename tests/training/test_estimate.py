import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from conftest import TINY, Call
from selftaught import Embedder, train
from selftaught.errors import UsageError
from selftaught.learners import make_settings
from selftaught.networks import Backbone, Encoder, Preprocessing, build_backbone
from selftaught.training.automatic import resolve
from selftaught.training.estimate import (
    PATIENCE,
    Estimate,
    Pace,
    choose_epochs,
    describe_estimate,
    estimate,
    measure_pace,
)

CPU = torch.device("cpu")
LINE = r"about .+ for (\d+) epochs? on this cpu device; about .+ of its memory.*; up to .+ of disk for the run"


def everything(folder: Path) -> dict[str, float]:
    """All files below a folder and that of the cache, with the time of their last change."""
    places = (folder, Path(os.environ["SELFTAUGHT_CACHE"]))
    return {str(file): file.stat().st_mtime for place in places for file in sorted(place.rglob("*"))}


def test_a_dry_run_says_what_it_would_take_and_writes_nothing(photos: Path, tmp_path: Path, call: Call) -> None:
    before = everything(tmp_path)
    words = ["--out", tmp_path / "run", "--backbone", "small", "--epochs", 7, "--eval", photos, "--dry-run"]
    code, _, told = call("train", photos, *words)
    assert code == 0
    assert (found := re.search(LINE, told))
    assert found[1] == "7"
    assert "batch size 20" in told
    assert "nothing was written" in told
    assert everything(tmp_path) == before
    model = train(photos, out=tmp_path / "run", dry_run=True, **(TINY | {"quiet": True}))
    assert model.description["recipe"] == "none"
    assert everything(tmp_path) == before


def test_a_dry_run_of_a_finished_run_says_what_more_epochs_would_take(run: Path, call: Call) -> None:
    before = everything(run)
    code, _, told = call("train", "--resume", run, "--epochs", 12, "--dry-run")
    assert code == 0
    assert (found := re.search(LINE, told))
    assert found[1] == "10"
    assert everything(run) == before
    model = train(resume=run, epochs=12, dry_run=True, quiet=True)
    assert model.identity == Embedder.load(run, "cpu").identity
    with pytest.raises(UsageError, match="has done 2 epochs already"):
        train(resume=run, epochs=2, dry_run=True, quiet=True)
    code, _, told = call("train", "--resume", run, "--dry-run")
    assert (code, told) == (0, f"finished: the model is in {run}; --epochs with a larger number goes on\n")
    assert everything(run) == before


def test_a_dry_run_refuses_the_folders_that_a_run_would_refuse(
    photos: Path, run: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "notes.txt").touch()
    for folder, told in ((run, f"or go on with it: --resume {run}"), (tmp_path, "give another --out")):
        before = everything(folder)
        code, _, error = call("train", photos, "--out", folder, "--dry-run")
        assert code == 2
        assert told in error
        assert everything(folder) == before


def test_a_dry_run_says_both_stages_of_a_semi_supervised_run(photos: Path, tmp_path: Path, call: Call) -> None:
    pytest.importorskip("pytorch_metric_learning")
    (tmp_path / "labeled").mkdir()
    for name in ("class 0", "class 1"):
        (tmp_path / "labeled" / name).symlink_to(photos / name)
    labeled = ["--labeled", tmp_path / "labeled", "--unlabeled", photos / "class 2"]
    before = everything(tmp_path)
    code, _, told = call(
        "train", *labeled, "--out", tmp_path / "run", "--backbone", "small", "--neighbors", 2, "--dry-run"
    )
    assert code == 0
    assert re.findall(LINE, told) == ["30", "90"]
    assert everything(tmp_path) == before


def test_a_new_run_is_told_what_it_takes_before_it_starts(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(photos, out=tmp_path / "run", epochs=1, **TINY)
    told = capsys.readouterr().err
    assert re.search(LINE, told)
    assert told.index("of its memory") < told.index("before training")


@pytest.mark.parametrize(("seconds", "epochs"), [(1e-9, 30), (0.6, 30), (2.4, 10), (50.0, 1)])
def test_without_a_gpu_a_run_is_as_long_as_its_time_allows(seconds: float, epochs: int) -> None:
    backbone = Backbone("own", nn.Conv2d(3, 4, 8, 8), Preprocessing(size=32), True, "")
    choice = choose_epochs(make_settings("best"), 100, backbone, CPU, Pace(learn=seconds / 2, look=0.0))
    assert choice.value == epochs
    assert "without a GPU" in choice.reason


def test_the_chosen_length_counts_all_that_the_estimate_does() -> None:
    backbone = Backbone("own", nn.Conv2d(3, 4, 8, 8), Preprocessing(size=32), True, "")
    open_settings, pace = make_settings("best", neighbors=5), Pace(learn=0.5, look=0.2)

    def seconds(epochs: int) -> float:
        settings, _ = resolve(replace(open_settings, epochs=epochs), 200, backbone, CPU)
        used = replace(backbone, preprocessing=replace(backbone.preprocessing, use_size=settings.use_size or 32))
        return estimate(settings, 200, 0, used, CPU, pace).seconds

    chosen = choose_epochs(open_settings, 200, backbone, CPU, pace).value
    assert seconds(chosen) <= PATIENCE < seconds(chosen + 1)


def test_time_goes_with_images_epochs_and_views_and_memory_with_the_batch() -> None:
    backbone = Backbone("own", nn.Conv2d(3, 4, 8, 8), Preprocessing(size=32), True, "")
    settings = replace(make_settings("official", epochs=10, batch_size=40), freeze_batch_norm=True, precision="32-true")
    pace = Pace(learn=1.0, look=0.1)
    whole = estimate(settings, 100, 0, backbone, CPU, pace)
    look = 0.1 * (backbone.preprocessing.squash / 32) ** 2  # the whole image, in every epoch
    epoch, floors = 100 * (2.2 + look), 2 * 100 * (look + 0.1)
    assert whole.seconds == pytest.approx(10 * epoch + 100 * look + floors)
    assert estimate(settings, 100, 0, backbone, CPU, pace, done=4).seconds == pytest.approx(
        6 * epoch + 100 * look + floors
    )
    more = estimate(settings, 100, 50, backbone, CPU, pace).seconds - whole.seconds
    assert more == pytest.approx((10 + 1 + 2) * 50 * 0.1)
    random = estimate(settings, 100, 0, replace(backbone, pretrained=False), CPU, pace).seconds
    assert whole.seconds - random == pytest.approx(floors)
    heads = estimate(replace(settings, train="heads"), 100, 50, backbone, CPU, pace)
    assert heads.seconds == pytest.approx(100 * 5 * 0.1 + 5)
    assert heads.memory < whole.memory
    parts = estimate(replace(settings, rows_at_once=20), 100, 0, backbone, CPU, pace)
    double = estimate(replace(settings, batch_size=80), 100, 0, backbone, CPU, pace)
    assert double.memory - whole.memory == pytest.approx((whole.memory - parts.memory) * 80 / 60)
    assert whole.decoded == 0
    assert estimate(replace(settings, cache_side=30), 100, 50, backbone, CPU, pace).decoded == 150 * 3600
    assert heads.saved - whole.saved == 4 * 4 * (100 * 5 + 50)  # the features of all views


def test_a_run_folder_takes_no_more_disk_than_was_said(run: Path) -> None:
    settings = replace(make_settings(**TINY, epochs=2), freeze_batch_norm=True)
    said = estimate(settings, 24, 24, build_backbone("small", "none"), CPU, Pace(learn=1.0, look=0.1)).saved
    checkpoint = (run / "checkpoint.pt").stat().st_size
    assert 3 * checkpoint < said < 6 * checkpoint
    kept = estimate(replace(settings, snapshots=1), 24, 24, build_backbone("small", "none"), CPU, Pace(1.0, 0.1)).saved
    assert kept > said


def test_a_line_names_time_memory_and_disk(tmp_path: Path) -> None:
    settings = make_settings("official", epochs=10)
    told = describe_estimate(Estimate(3700, 3 * 2**30, 2**29, 2**20), settings, CPU, tmp_path / "run", done=4)
    assert told.startswith("about 1 h 1 min for 6 epochs on this cpu device; about 3.0 GiB of its memory (")
    assert "; up to 0.5 GiB of disk for the run (" in told
    assert " and 1 MiB for decoded images (" in told


def test_the_pace_of_a_network_without_anything_to_learn_is_measured_too() -> None:
    pace = measure_pace(Encoder(nn.AvgPool2d(4), Preprocessing(size=32)), CPU)
    assert pace.learn > 0
    assert pace.look > 0
