from pathlib import Path
from typing import Any

import pytest

from conftest import TINY
from selftaught import train
from selftaught.errors import UsageError
from selftaught.run_folder import METRICS

WHOLE = {"cache_side": 70}
"""Decoded images are kept as they are, so that both readers cut the same pixels."""


@pytest.mark.parametrize("change", [{"color": 1.0}, {"crop_shape": "image"}], ids=str)
def test_both_readers_train_with_changed_views_alike_and_otherwise_than_without(
    photos: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    runs: dict[str, dict[str, Any]] = {"plain": {}, "cached": change, "files": change | {"input": "files"}}
    for name, changes in runs.items():
        train(photos, out=tmp_path / name, epochs=1, quiet=True, **{**TINY, **WHOLE, **changes})
    plain, cached, files = ((tmp_path / name / METRICS).read_text() for name in ("plain", "cached", "files"))
    assert cached == files
    assert cached != plain


@pytest.mark.parametrize("change", [{"use_size": 100_000}, {"use_scale": 1e3}], ids=str)
def test_a_size_at_use_that_no_memory_holds_is_refused(photos: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="at most 2048"):
        train(photos, out=tmp_path / "run", epochs=0, quiet=True, **{**TINY, **change})
    assert not (tmp_path / "run").exists()
