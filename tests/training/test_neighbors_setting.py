"""How many neighbors a query gets where the user leaves it open: by the photos of one thing that training sees."""

from pathlib import Path
from typing import Any

import pytest

from conftest import OWN_INPUTS, draw_photos, own_backbone
from selftaught import train
from selftaught.run_folder import read_record
from selftaught.training.evaluation import Evaluation

QUICK: dict[str, Any] = {"preprocessing": OWN_INPUTS, "dim": 6, "epochs": 1, "workers": 0, "precision": "32-true"}
COUNT = "selftaught.training.stage.count_photos_per_thing"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_photos(tmp_path_factory.mktemp("pairs"), classes=16, photos=2)


@pytest.mark.parametrize(("things", "k", "batch"), [(None, 5, 30), (2, 2, 24), (4, 3, 30)])
def test_few_photos_of_a_thing_make_few_neighbors_and_a_batch_that_fits(
    things: int | None, k: int, batch: int, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COUNT, lambda *_, **__: things)
    passes = []
    whole = Evaluation.training_set

    def counted(self: Evaluation, images: Any, view: Any = "squash") -> Any:
        passes.append(bool(self.passes and (view, str(images.root), False) in self.passes))
        return whole(self, images, view)

    monkeypatch.setattr(Evaluation, "training_set", counted)
    run = tmp_path / "run"
    train(pairs, out=run, backbone=own_backbone(), quiet=True, **QUICK)
    record = read_record(run)
    assert record.requested.neighbors is None
    assert record.settings is not None
    assert (record.settings.neighbors, record.settings.batch_size) == (k, batch)
    reason = next(choice.reason for choice in record.choices if choice.name == "neighbors")
    assert ("photos of one thing" in reason) == (things is not None)
    assert passes[:4] == [False, False, True, True]  # two views, which are not embedded again for the first epoch
    train(resume=run, backbone=own_backbone(), epochs=2, quiet=True)
    assert read_record(run).settings.neighbors == k  # type: ignore[union-attr]


def test_what_the_user_says_is_not_looked_for(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> int:
        raise AssertionError("looked for")

    monkeypatch.setattr(COUNT, never)
    for name, changes in (("k", {"neighbors": 3}), ("batch", {"batch_size": 20}), ("paper", {"recipe": "official"})):
        run = tmp_path / name
        train(pairs, out=run, backbone=own_backbone(), quiet=True, **QUICK, **changes)
        assert read_record(run).settings.neighbors == changes.get("neighbors", 5)  # type: ignore[union-attr]


def test_training_says_how_good_an_approximate_search_is_where_there_is_one(
    pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("faiss")
    for batches, found in (("neighbors", True), ("whitened", True), ("random", False)):
        options = QUICK | {"neighbors": 2, "batches": batches, "search": "approximate"}
        train(pairs, out=tmp_path / batches, backbone=own_backbone(), **options)
        said = capsys.readouterr().err
        assert [text in said for text in ("search approximate", "of the neighbors that an exact")] == [found] * 2
