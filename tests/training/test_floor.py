import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import OWN_INPUTS, draw_photos, own_backbone
from selftaught import Embedder, train
from selftaught.data import find_images
from selftaught.networks import whitened_layer
from selftaught.retrieval import score
from selftaught.run_folder import read_models
from selftaught.training import floor, model, readout
from selftaught.training.floor import find_again
from selftaught.training.model import give_verdict

QUICK: dict[str, Any] = {"preprocessing": OWN_INPUTS, "dim": 6, "batch_size": 20, "workers": 0, "precision": "32-true"}


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many photos as whitening needs."""
    return draw_photos(tmp_path_factory.mktemp("many"), classes=26, photos=8)


@pytest.fixture(scope="session")
def best_run(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("best") / "run"
    train(many, out=folder, backbone=own_backbone(), eval=many, epochs=1, quiet=True, **QUICK)
    return folder


def encode(run: Path, photos: Path) -> Tensor:
    images = find_images(photos)
    return Embedder.load(run, "cpu", own_backbone()).encode([images.path(i) for i in range(len(images))])


def test_an_image_is_found_again_by_its_rank_among_all() -> None:
    gallery = torch.arange(4.0)[:, None]
    assert find_again(gallery, gallery) == 1
    assert find_again(gallery + torch.tensor([[0.0], [0.0], [0.0], [-1.2]]), gallery) == pytest.approx((3 + 1 / 3) / 4)
    assert find_again(gallery * float("nan"), gallery) == pytest.approx(1 / 2.5), "undefined vectors find nothing"


def test_a_whitened_layer_does_the_work_of_the_layer_before_it() -> None:
    torch.manual_seed(0)
    head, features = nn.Linear(8, 7), torch.randn(50, 8)
    outputs = head(features).detach()
    after, folded = whitened_layer(outputs, 5), whitened_layer(outputs, 5, after=head)
    torch.testing.assert_close(folded(features), after(outputs), rtol=1e-4, atol=1e-5)


def test_best_delivers_the_wide_head_half_whitened_and_used_at_a_larger_size(best_run: Path, many: Path) -> None:
    about = json.loads((best_run / "model.json").read_text())
    assert (about["metric"], about["head"], about["dim"], about["recipe"]) == ("cosine", "linear", 6, "best")
    assert about["preprocessing"]["use_size"] == round(32 * 9 / 7)
    vectors = encode(best_run, many)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(vectors)))
    # Whitened on the very images it was trained on: before they get length 1, its dimensions are uncorrelated there.
    raw = Embedder.load(best_run, "cpu", own_backbone()).network
    raw.normalize = False
    images = find_images(many)
    z = Embedder(raw, about).encode([images.path(i) for i in range(len(images))])
    moments = z.T @ z / len(z)
    off = moments - moments.diagonal().diag()
    assert off.abs().max() < 1e-3 * moments.diagonal().max()


def test_models_json_has_the_floors_and_the_trained_model_with_the_scores_of_evaluate(
    best_run: Path, many: Path
) -> None:
    models = json.loads((best_run / "models.json").read_text())
    assert set(models["models"]) == {
        "plain backbone",
        "plain, avg+max",
        "half-whitened",
        "half-whitened, avg+max",
        "trained",
    }
    assert models["floor"] == "half-whitened, avg+max"  # read out as the trained one is
    served = "trained" if not (best_run / "trained").exists() else models["floor"]
    recall = score(encode(best_run, many), find_images(many).classes()).row()["recall@1"]
    assert recall == pytest.approx(models["models"][served]["recall@1"], abs=0.01)


def test_the_trained_model_is_whitened_as_much_as_the_untrained_one(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def layer(features: Tensor, dim: int, alpha: float, after: nn.Linear | None = None) -> nn.Linear:
        used.append(alpha)
        return whitened_layer(features, dim, alpha, after)

    for module in (floor, model, readout):
        monkeypatch.setattr(module, "whitened_layer", layer)
    monkeypatch.setattr(floor, "choose_exponent", lambda _: 0.25)
    run = tmp_path / "run"
    train(many, out=run, backbone=own_backbone(), eval=many, epochs=1, quiet=True, **QUICK)
    assert set(used) == {0.25}
    assert json.loads((run / "models.json").read_text())["exponent"] == 0.25
    train(resume=run, backbone=own_backbone(), epochs=2, quiet=True)
    assert set(used) == {0.25}


def test_the_floor_is_a_model_of_the_untrained_backbone(best_run: Path) -> None:
    floor = Embedder.load(best_run / "floor", "cpu", own_backbone())
    untrained = own_backbone().state_dict()
    for name, tensor in untrained.items():
        assert torch.equal(floor.network.encoder.backbone.state_dict()[name], tensor)
    assert floor.metric == "cosine"


def test_a_run_that_pools_by_the_generalized_mean_is_compared_with_that_and_goes_on_so(
    many: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(many, out=run, backbone=own_backbone(), pooling="gem", epochs=1, quiet=True, **QUICK)
    models = json.loads((run / "models.json").read_text())
    untrained = {"plain backbone", "plain, generalized mean", "half-whitened", "half-whitened, generalized mean"}
    assert set(models["models"]) == {*untrained, "trained"}
    assert models["floor"] == "half-whitened, generalized mean"
    train(many, out=tmp_path / "on", backbone=own_backbone(), from_run=run, epochs=0, quiet=True, **QUICK)
    for folder in (run, run / "floor", tmp_path / "on"):
        assert json.loads((folder / "model.json").read_text())["pooling"] == "gem"


def test_the_floor_is_served_where_training_made_images_harder_to_find(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model, "measure", lambda *_: {"found_again": 0.0})
    run = tmp_path / "run"
    served = train(many, out=run, backbone=own_backbone(), epochs=1, **QUICK)
    assert "training made it worse" in capsys.readouterr().err
    assert served.identity == Embedder.load(run / "floor", "cpu", own_backbone()).identity
    assert Embedder.load(run, "cpu", own_backbone()).identity == served.identity
    assert Embedder.load(run / "trained", "cpu", own_backbone()).identity != served.identity


def test_official_serves_its_head_f_whatever_the_floor_is(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model, "measure", lambda *_: {"found_again": 0.0})
    run = tmp_path / "run"
    served = train(many, out=run, recipe="official", backbone=own_backbone(), epochs=1, **QUICK)
    said = capsys.readouterr().err
    assert "the vectors of the two are made in different ways, so this says little" in said
    assert "worse" not in said, "a head and whitened features cannot be compared so"
    assert served.metric == "euclidean"
    assert not (run / "trained").exists()
    assert served.preprocessing.use_size == 32


def test_few_images_are_not_whitened_on(photos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = QUICK | {"batch_size": 8, "neighbors": 2}
    train(photos, out=run, backbone=own_backbone(), epochs=1, quiet=True, **settings)
    trained = run / "trained" if (run / "trained").exists() else run
    assert json.loads((trained / "model.json").read_text())["metric"] == "euclidean"
    assert set(json.loads((run / "models.json").read_text())["models"]) == {
        "plain backbone",
        "plain, avg+max",
        "trained",
    }


FOUND = '{"floor": "x", "models": {"x": {"found_again": %s}}, "exponent": %s}'


@pytest.mark.parametrize(
    "broken",
    ["", "[]", '{"floor": "x", "models": {}}', '{"floor": 1}', FOUND % ("9" * 400, "0.5"), FOUND % ("0.9", '"much"')],
)
def test_damaged_models_json_costs_the_comparison_and_nothing_else(best_run: Path, tmp_path: Path, broken: str) -> None:
    (tmp_path / "models.json").write_text(broken)
    assert read_models(tmp_path) is None
    assert read_models(best_run) is not None


def test_the_verdict_says_in_words_whether_training_was_worth_it() -> None:
    floors = {"plain backbone": {"found_again": 0.98}, "half-whitened": {"found_again": 0.97}}
    fine = give_verdict(floors, "plain backbone", {"found_again": 0.99}, False)
    assert fine.endswith("98.00% (plain backbone): no sign that training did harm")
    sure = give_verdict({"plain backbone": {"found_again": 1.0}}, "plain backbone", {"found_again": 0.999}, False)
    assert "no sign that training did harm, but nearly all are found in any case, so this says little" in sure
    worse = give_verdict(floors, "plain backbone", {"found_again": 0.9}, True)
    assert "training made it worse" in worse
    assert "so the untrained model (plain backbone) is served, and the trained one is in trained/" in worse
    scored = {name: row | {"recall@1": 0.4, "map@r": 0.2} for name, row in floors.items()}
    scored["half-whitened"]["recall@1"] = 0.35
    said = give_verdict(scored, "plain backbone", {"found_again": 0.99, "recall@1": 0.452, "map@r": 0.151}, False)
    assert said == (
        "training gained 5.2 points of Recall@1 (45.2%; without training 40.0% at best: plain backbone) "
        "and lost 4.9 points of MAP@R (15.1%; 20.0%)"
    )
    both = give_verdict(scored, "plain backbone", {"found_again": 0.99, "recall@1": 0.452, "map@r": 0.251}, False)
    assert both.endswith("at best: plain backbone) and gained 5.1 points of MAP@R (25.1%; 20.0%)")
    same = give_verdict(scored, "plain backbone", {"found_again": 0.99, "recall@1": 0.4, "map@r": 0.2}, False, 96)
    assert same.startswith("training did not change Recall@1 (40.0%; without training 40.0% at best: plain backbone)")
    assert same.endswith("; with 96 labeled photos, up to 9.8 points of Recall@1 may be chance")
    kept = "; by the labels the untrained model (plain backbone) is the better one: it is in floor/"
    for recall in (0.3, 0.5):
        told = give_verdict(scored, "plain backbone", {"found_again": 0.99, "recall@1": recall, "map@r": 0.1}, False)
        assert told.endswith(kept) == (recall == 0.3)
    unlike = give_verdict(floors, "plain backbone", {"found_again": 0.9}, False, alike=False)
    assert unlike.endswith("so this says little; compare neighbors, which selftaught report shows"), (
        "with a page or not"
    )
    assert "worse" not in unlike
    for recall, word in ((0.3, "right"), (0.5, "wrong")):
        told = give_verdict(scored, "plain backbone", {"found_again": 0.9, "recall@1": recall, "map@r": 0.1}, True)
        assert told.endswith(f"the labels say that this was {word}")


def test_momentum_epochs_and_size_are_chosen_by_the_run(best_run: Path) -> None:
    choices = json.loads((best_run / "settings.json").read_text())["settings"]
    assert choices["momentum"] == 0.998
    assert choices["use_size"] == 41
