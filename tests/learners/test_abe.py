from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from conftest import TINY
from selftaught import train
from selftaught.errors import UsageError
from selftaught.learners import build_learner, make_settings
from selftaught.learners.abe import divergence_loss, ensemble_contrastive_loss
from selftaught.networks import Encoder, Preprocessing, build_backbone
from selftaught.networks.model import SharedLayer
from selftaught.training.snapshots import load_snapshot

CLASSES = torch.tensor([0, 1, 0, 2, 1, 2])


def learners(n: int = 6, m: int = 8, d: int = 3) -> Tensor:
    return F.normalize(torch.randn(n, m, d, dtype=torch.float64), dim=2)


@pytest.mark.parametrize(("cosine", "expected"), [(1.0, 1.0), (0.8, 0.6), (0.5, 0.0), (-1.0, 0.0)])
def test_learners_of_an_image_are_pushed_apart_up_to_sixty_degrees(cosine: float, expected: float) -> None:
    pair = torch.tensor([[[1.0, 0.0], [cosine, (1 - cosine**2) ** 0.5]]])
    assert float(divergence_loss(pair)) == pytest.approx(expected, abs=1e-6)


def test_losses_against_loops() -> None:
    z = learners()
    metric = sum(
        float(d2) if CLASSES[i] == CLASSES[j] else max(0.0, 1 - float(d2))
        for m in range(8)
        for i in range(6)
        for j in range(6)
        if i != j
        for d2 in [(z[i, m] - z[j, m]).square().sum()]
    )
    assert float(ensemble_contrastive_loss(z, CLASSES)) == pytest.approx(metric / 30, rel=1e-9)
    pairs = [(p, q) for p in range(8) for q in range(p + 1, 8)]
    apart = [max(0.0, 1 - float((row[p] - row[q]).square().sum())) for row in z for p, q in pairs]
    assert float(divergence_loss(z)) == pytest.approx(sum(apart) / len(apart), rel=1e-9)


@pytest.mark.parametrize("name", ["googlenet", "small"])
def test_with_masks_of_one_every_learner_is_the_plain_network(name: str) -> None:
    torch.manual_seed(0)
    plain = build_backbone(name, "none").module.eval()
    torch.manual_seed(0)
    ensemble: Any = build_backbone(f"{name}_abe", "none").module.eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert not torch.allclose(*ensemble(images).unflatten(1, (8, -1))[0, :2]), "masks differ"
        for mask in ensemble.masks:
            mask.bias.fill_(1e4)
        rows, expected = ensemble(images).unflatten(1, (8, -1)), plain(images).mean((2, 3))
    for learner in rows.unbind(1):
        torch.testing.assert_close(learner, expected, rtol=1e-4, atol=1e-4)


def test_the_attention_of_googlenet_starts_as_a_copy_of_its_own_blocks_and_learns_apart() -> None:
    ensemble: Any = build_backbone("googlenet_abe", "none").module
    own, copied = ensemble.last[0]["1x1"].weight, ensemble.attention[0]["1x1"].weight
    assert torch.equal(own, copied)
    assert own is not copied


def test_cosine_of_saved_vectors_is_the_mean_of_the_learners_cosines() -> None:
    one, other = F.normalize(SharedLayer(32, 16)(torch.randn(2, 32)).detach())
    cosines = F.cosine_similarity(one.view(8, 2), other.view(8, 2), dim=1)
    assert float(one @ other) == pytest.approx(float(cosines.mean()), abs=1e-6)
    with pytest.raises(UsageError, match="dim 12 cannot be shared by 8 learners"):
        SharedLayer(32, 12)


def test_steps_lower_the_loss_of_their_batch() -> None:
    torch.manual_seed(0)
    chosen = make_settings(method="abe", backbone="small_abe", dim=64, batch_size=6, neighbors=2)
    backbone = build_backbone("small_abe", "none").module
    learner = build_learner(Encoder(backbone, Preprocessing(size=32)), chosen, 6, CLASSES)
    optimizer = torch.optim.SGD([p for p in learner.parameters() if p.requires_grad], lr=1e-3)
    images = torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8)
    values = []
    for _ in range(5):
        losses = learner(images, torch.arange(6).repeat(2))
        assert float((losses["metric"] + losses["divergence"] - losses["loss"]).detach()) == pytest.approx(0, abs=1e-6)
        optimizer.zero_grad(), losses["loss"].backward(), optimizer.step()
        values.append(float(losses["loss"].detach()))
    assert values[-1] < values[0]
    assert backbone.get_parameter("masks.0.weight").grad is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backbone": "small"}, "needs the backbone googlenet_abe"),
        ({"backbone": "small_abe", "train": "heads"}, "cannot train heads alone"),
        ({"backbone": "small_abe", "dim": 12}, "dim 12 cannot be shared by 8 learners"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(photos: Path, tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        train(photos, out=tmp_path / "run", method="abe", epochs=1, quiet=True, **{**TINY, **options})


def test_a_snapshot_is_loaded_with_its_shared_layer(photos: Path, tmp_path: Path) -> None:
    options = TINY | {"backbone": "small_abe", "dim": 16, "epochs": 1, "snapshots": 1}
    train(photos, out=tmp_path / "run", method="abe", quiet=True, **options)
    snapshot = load_snapshot(tmp_path / "run", 1, torch.device("cpu"))
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    assert snapshot.student(images)["f"].shape == (2, 16)
