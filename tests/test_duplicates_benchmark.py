import importlib
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def duplicates(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module("duplicates")


def test_the_benchmark_prints_a_row_for_every_method(
    duplicates: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert duplicates.main(["--most", "24", "--copies", "2", "--size", "32", "--model", "small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "24 photos and 10 copies of them"
    assert lines[4].startswith("| selftaught dedup (small, ")
    assert all(line.count("|") == lines[2].count("|") for line in lines[3:])


def test_precision_and_recall_are_those_of_pairs(duplicates: ModuleType) -> None:
    origin = {"1.png": "1.png", "2.png": "2.png"}
    origin |= {f"1-{way}.png": "1.png" for way in duplicates.WAYS}
    pairs = {("1-mirrored.png", "1.png"), ("1-resized.png", "1-cropped.png"), ("1.png", "2.png")}
    assert duplicates.measure(pairs, origin) == ["67", "20", "0", "0", "0", "100", "0"]
