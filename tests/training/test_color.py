from pathlib import Path
from typing import Any

from conftest import TINY
from selftaught import train
from selftaught.run_folder import METRICS


def test_both_readers_train_with_changed_colors_alike_and_otherwise_than_without(photos: Path, tmp_path: Path) -> None:
    runs: dict[str, dict[str, Any]] = {"plain": {}, "cached": {"color": 1.0}, "files": {"color": 1.0, "input": "files"}}
    for name, changes in runs.items():
        train(photos, out=tmp_path / name, epochs=1, quiet=True, **{**TINY, **changes})
    plain, cached, files = ((tmp_path / name / METRICS).read_text() for name in ("plain", "cached", "files"))
    assert cached == files
    assert cached != plain
