import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from selftaught.data import make_products

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The benchmark as a module, which finds its own beside it."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("SELFTAUGHT_CACHE", str(tmp_path / "cache"))  # the benchmark sets it too: put it back after
    return importlib.import_module("training")


def test_the_training_benchmark_measures_all_sides_on_a_cpu(
    training: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, _ = make_products(tmp_path / "photos", products=16, photos=4, size=48, class_folders=True)
    file = tmp_path / "numbers.json"
    assert (
        training.main(["--data", str(photos), "--quick", "--epochs", "2", "--workers", "0", "--json", str(file)]) == 0
    )
    printed = capsys.readouterr().out
    assert "authors' style" in printed
    numbers = json.loads(file.read_text())
    (result,) = numbers["results"]
    assert result["backbone"] == "small"
    assert result["images"] == 32
    for side in ("ceiling", "authors", "ours"):
        assert 0 < result[side]["steps"] < result[side]["epoch"]
    pieces = ["input", "student", "teacher", "similarity + loss", "optimizer", "teacher update"]
    assert list(result["of_step"]) == pieces
    assert list(result["of_epoch"]) == ["neighbor pass", "signals", "evaluation"]
    assert all(ms > 0 for ms in (result["of_step"] | result["of_epoch"]).values())
    assert len(numbers["verdicts"]) == 1


def test_a_backbone_that_cannot_be_measured_is_told_and_fails(
    training: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, _ = make_products(tmp_path / "photos", products=4, photos=4, size=32)
    assert training.main(["--data", str(photos), "--quick", "--workers", "0", "--backbones", "smal"]) == 1
    assert "FAIL smal could not be measured" in capsys.readouterr().out


def test_verdicts_are_those_of_the_slow_and_the_fast(training: ModuleType) -> None:
    def verdicts(ours: float, device: str) -> list[bool]:
        speeds = [training.Speed(x, 1.2 * x) for x in (9.0, 80.0, ours)]
        pieces = {"similarity + loss": 20.0, "optimizer": 20.0, "teacher update": 5.0}
        result = training.Result("resnet50", 224, 1200, 120, 10, *speeds[:2], 1.0, speeds[2], pieces, {}, [], 60.0)
        return [good for good, _ in training.verdicts([result], device)]

    assert verdicts(9.9, "cuda") == [True] * 5
    assert verdicts(0.4, "cuda")[-2:] == [False, False]  # the pieces are then too large a share of a step
    assert verdicts(20.0, "cuda")[:3] == [False] * 3
    assert verdicts(39.0, "cpu") == [True]
    assert verdicts(41.0, "cpu") == [False]


def test_the_authors_teacher_is_a_slow_copy_of_the_student(training: ModuleType, tmp_path: Path) -> None:
    photos, _ = make_products(tmp_path / "photos", products=8, photos=4, size=48)
    paths = sorted(map(str, photos.iterdir()))
    authors = training.Authors("small", paths, training.changes_for("small", len(paths)), 0, torch.device("cpu"))
    before = authors.teacher.f.weight.clone()
    epoch = authors.epoch(1)
    assert 0 < epoch.part <= 1
    moved = (authors.teacher.f.weight - before).abs().max()
    assert 0 < moved < 1e-3
    assert all(isinstance(p, nn.Parameter) for p in authors.student.parameters())


def test_the_embedding_benchmark_measures_fewer_images_than_go_through_the_network_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = importlib.import_module("embedding")
    assert module.main(["--model", "small", "--device", "cpu", "--images", "3", "--quick"]) == 0
    printed = capsys.readouterr().out
    assert "3 images of 400×300" in printed
    assert [line.split(":")[0].strip() for line in printed.splitlines()[1:]] == ["network", "images", "files"]


def test_the_export_benchmark_compares_what_agrees(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="needs selftaught[onnx]")
    pytest.importorskip("onnxscript", reason="needs selftaught[onnx]")
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = importlib.import_module("export")
    threads = torch.get_num_threads()
    sides = {"PyTorch": lambda images: images.mean((1, 2)), "other": lambda images: images.mean((1, 2)) + 1e-4}
    monkeypatch.setattr(module, "make_sides", lambda *_: sides)
    assert module.main(["--model", "small", "--quick", "--threads", str(threads)]) == 0
    assert "their vectors agree" in capsys.readouterr().out
    sides["other"] = lambda images: images.mean((1, 2)) + 9
    assert module.main(["--model", "small", "--quick", "--threads", str(threads)]) == 1
    assert "FAIL" in capsys.readouterr().out
