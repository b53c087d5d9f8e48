"""What a run does once ``train`` has put it together: parts that are right alone can be joined wrongly."""

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from test_train import interrupt_at
from timm.optim.adamp import AdamP as TimmAdamP
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from conftest import OWN_INPUTS, TINY, draw_photos
from selftaught import Embedder, train
from selftaught.data import CachedReader, ViewRequest, Views, find_images
from selftaught.errors import Interrupted
from selftaught.learners import STML
from selftaught.method import STMLLoss
from selftaught.training import evaluation, floor
from selftaught.training.assemble import Parts
from selftaught.training.loop import Loop

FROZEN: dict[str, Any] = TINY | {"freeze_batch_norm": True, "quiet": True}
OPEN: dict[str, Any] = {name: TINY[name] for name in ("backbone", "workers", "precision")} | {"quiet": True}
"""What is left of TINY where a recipe decides."""


@dataclass
class Stage:
    """A stage of a run, and what was seen of it: before each step the modes, what learns, and the optimizer's groups;
    then the learner before, the views, the images they show, and the losses."""

    parts: Parts
    modes: list[dict[str, bool]] = field(default_factory=list)
    learns: list[set[str]] = field(default_factory=list)
    groups: list[list[dict[str, Any]]] = field(default_factory=list)
    steps: list[tuple[Any, Tensor, Tensor, Tensor]] = field(default_factory=list)

    @property
    def rates(self) -> list[list[float]]:
        return [[group["lr"] for group in groups] for groups in self.groups]

    @property
    def grouped(self) -> list[set[str]]:
        """The names of the parameters in each group of the optimizer."""
        names = {id(parameter): name for name, parameter in self.parts.learner.named_parameters()}
        return [{names[id(p)] for p in group["params"]} for group in self.parts.optimizer.param_groups]


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """The stages that are trained from now on."""
    seen: list[Stage] = []
    begin, step = Loop.__init__, Loop._step

    def noted(loop: Loop, parts: Parts) -> None:
        begin(loop, parts)
        seen.append(Stage(parts))

    def watched(loop: Loop, images: Tensor, indices: Tensor) -> Tensor:
        stage, learner = seen[-1], loop.learner
        stage.modes.append({name: module.training for name, module in learner.named_modules()})
        stage.learns.append({name for name, parameter in learner.named_parameters() if parameter.requires_grad})
        stage.groups.append([dict(group) for group in loop.parts.optimizer.param_groups])
        before = copy.deepcopy(learner)
        stage.steps.append((before, images, indices, step(loop, images, indices)))
        return stage.steps[-1][3]

    monkeypatch.setattr(Loop, "__init__", noted)
    monkeypatch.setattr(Loop, "_step", watched)
    return seen


STML_SETTINGS = ("k", "sigma", "delta", "reduction", "include_self", "group_views", "similarity", "distill", "relaxed")
AUTHORS = ("pairs", True, True, "contextualized", True, True)


@pytest.mark.parametrize(
    ("recipe", "loss", "momentum", "before_step", "rates", "widths"),
    [
        ("official", (10, 3.0, 1.0, *AUTHORS), 0.999, True, (1e-4, 1e-4), (512, 256)),
        ("paper", (10, 3.0, 1.0, "samples", False, False, *AUTHORS[3:]), 0.999, False, (1e-4, 1e-4), (512, 256)),
        ("sop", (4, 3.0, 0.9, *AUTHORS), 0.9, True, (1e-4, 1e-2), (512, 256)),
        ("scratch", (4, 3.0, 0.9, *AUTHORS), 0.9, True, (5e-4, 1e-4), (128, 1024)),
    ],
)
def test_a_recipe_comes_as_specified_into_every_step(
    photos: Path,
    tmp_path: Path,
    stages: list[Stage],
    recipe: str,
    loss: tuple[object, ...],
    momentum: float,
    before_step: bool,
    rates: tuple[float, float],
    widths: tuple[int, int],
) -> None:
    train(photos, out=tmp_path / "run", recipe=recipe, epochs=3, **OPEN)
    (stage,) = stages
    learner = stage.parts.learner
    assert isinstance(learner, STML)
    assert tuple(getattr(learner.criterion, name) for name in STML_SETTINGS) == loss
    assert (learner.settings.momentum, learner.settings.teacher_update == "before_step") == (momentum, before_step)
    factors = (1, 1, 1) if recipe == "scratch" else (1, 0.75, 0.25)  # half a cosine to 0 after the last epoch
    assert stage.rates == [pytest.approx([factor * rate for rate in rates]) for factor in factors]
    for group in (group for groups in stage.groups for group in groups):
        known = {"betas": (0.9, 0.999), "weight_decay": 1e-2, "nesterov": True}
        assert known.items() <= group.items()
    reader, start = stage.parts.reader, stage.steps[0][0]
    assert isinstance(reader, CachedReader)
    assert reader.views == Views(32, 37, 37, crop_scale=(0.16, 1.0), use_size=32, crop_shape="random", color=0.0)
    heads = [start.network.heads["f"], start.network.heads["g"], start.teacher.heads["g"]]
    assert [head.out_features for head in heads] == [*widths, widths[1]]
    for head in heads:
        assert not head.bias.any()
        products = head.weight @ head.weight.T if len(head.weight) <= 256 else head.weight.T @ head.weight
        torch.testing.assert_close(products, torch.eye(len(products)), rtol=0, atol=1e-4)
    assert not torch.allclose(heads[1].weight, heads[2].weight, atol=0.01), "the teacher has a start of its own"
    student, teacher = (network.encoder.state_dict() for network in (start.network, start.teacher))
    assert all(torch.equal(teacher[name], tensor) for name, tensor in student.items())


@pytest.mark.parametrize("recipe", ["official", "paper"])
@pytest.mark.parametrize("part", [None, 6])
def test_a_step_is_the_method_put_together_by_hand(
    photos: Path, tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch, recipe: str, part: int | None
) -> None:
    gradients: list[dict[str, Tensor]] = []
    after_backward = STML.after_backward

    def note(learner: STML) -> None:
        gradients.append({name: p.grad.clone() for name, p in learner.network.named_parameters() if p.grad is not None})
        after_backward(learner)

    monkeypatch.setattr(STML, "after_backward", note)
    frozen = part is not None  # parts need it; without, the statistics of batch norm are averaged too
    changes = {"recipe": recipe, "momentum": 0.7, "freeze_batch_norm": frozen, "rows_at_once": part, "quiet": True}
    train(photos, out=tmp_path / "run", epochs=1, head_lr=3e-3, **(TINY | changes))
    (before, images, indices, losses), (after, *_) = stages[0].steps[:2]
    text: dict[str, Any] = {"reduction": "samples", "include_self": False, "group_views": False}
    criterion = STMLLoss(k=4, sigma=3.0, delta=1.0, **(text if recipe == "paper" else {}))
    rows, student, teacher = torch.cat([images[:, 0], images[:, 1]]), before.network, before.teacher

    def heads(network: Any) -> dict[str, Tensor]:
        inputs = (rows.float() / 255 - 0.5) / 0.25
        feature_map = network.encoder.backbone(inputs.contiguous(memory_format=torch.channels_last))
        pooled = feature_map.mean((2, 3)) + feature_map.amax((2, 3))
        return {name: nn.functional.linear(pooled, head.weight, head.bias) for name, head in network.heads.items()}

    found = criterion(**heads(student), teacher=heads(teacher)["g"].detach(), ids=indices.repeat(2))
    found.total.backward()
    torch.testing.assert_close(losses, torch.stack(found).detach(), rtol=1e-4, atol=1e-5)
    parameters = {name: parameter for name, parameter in student.named_parameters() if parameter.requires_grad}
    assert parameters.keys() == gradients[0].keys()
    scale = max(float(gradient.abs().max()) for gradient in gradients[0].values())
    for name, parameter in parameters.items():
        torch.testing.assert_close(gradients[0][name], parameter.grad, rtol=1e-2, atol=1e-3 * scale)
        parameter.grad = gradients[0][name]  # a first step moves by the sign, which rounding can change
    previous = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    of_heads = [parameter for name, parameter in parameters.items() if name.startswith("heads.")]
    of_backbone = [parameter for name, parameter in parameters.items() if name.startswith("encoder.")]
    groups = [{"params": of_backbone, "lr": 1e-4}, {"params": of_heads, "lr": 3e-3}]
    TimmAdamP(groups, betas=(0.9, 0.999), weight_decay=1e-2, nesterov=True).step()
    for name, tensor in student.state_dict().items():
        torch.testing.assert_close(after.network.state_dict()[name], tensor, rtol=1e-4, atol=1e-6)
    source = previous if recipe == "official" else student.state_dict()
    for name, tensor in teacher.state_dict().items():
        mean = 0.7 * tensor + 0.3 * source[name] if tensor.is_floating_point() else source[name]
        torch.testing.assert_close(after.teacher.state_dict()[name], mean, rtol=1e-4, atol=1e-6)


def test_batches_are_queries_with_their_nearest_by_the_raw_g_of_squashed_images_in_eval_mode(
    photos: Path, tmp_path: Path, stages: list[Stage]
) -> None:
    train(photos, out=tmp_path / "run", epochs=2, cache_side=70, **TINY | {"neighbors": 4, "quiet": True})
    (stage,), paths = stages, find_images(photos).paths()
    steps = [indices for _, _, indices, _ in stage.steps]
    assert len(steps) == 2 * (24 // 8)
    request = [ViewRequest(path, "squash") for path in paths]
    (batch,) = stage.parts.reader.read([request])
    assert batch.images.shape == (24, 1, 3, 37, 37), "256 for a crop of 224"
    for epoch, learner in enumerate([stage.steps[0][0], stage.steps[3][0]]):
        with torch.no_grad():
            g = learner.eval().network(batch.images[:, 0])["g"].double()
        distances = torch.cdist(g, g).fill_diagonal_(-1)
        for indices in steps[3 * epoch : 3 * epoch + 3]:
            queries = indices[::4]
            assert len(set(queries.tolist())) == 2, "drawn without replacement"
            near = distances[queries].argsort(1)[:, :4]
            assert near.flatten().tolist() == indices.tolist()


def check_flags(stage: Stage, *, heads_alone: bool = False, target_trains: bool = False) -> None:
    """All that a step must find, with frozen batch norm."""
    assert stage.steps
    learner = stage.parts.learner
    norms = {name for name, part in learner.named_modules() if isinstance(part, _BatchNorm) and ".encoder." in name}
    follows = {name for name in stage.modes[0] if name.startswith(("teacher", "target"))}
    resting = norms | (follows if not target_trains else {"target"})
    encoder = {name for name, _ in learner.named_parameters() if name.startswith("network.encoder.")}
    backbone = set() if heads_alone else {name for name in encoder if name.rpartition(".")[0] not in norms}
    heads = {name for name, _ in learner.named_parameters() if name.startswith("network.heads.")}
    expected = [group for group in (backbone, heads) if group]
    assert norms
    assert stage.grouped[: len(expected)] == expected
    for modes, learns in zip(stage.modes, stage.learns, strict=True):
        assert {name for name, training in modes.items() if not training} == resting
        assert learns == set().union(*stage.grouped)


@pytest.mark.parametrize("method", ["stml", "moco", "byol", "isif", "multi-similarity"])
def test_frozen_batch_norm_rests_and_all_else_learns_in_every_step(
    photos: Path, tmp_path: Path, stages: list[Stage], method: str
) -> None:
    if method == "multi-similarity":
        pytest.importorskip("pytorch_metric_learning")
    train(photos, out=tmp_path / "run", epochs=2, method=method, **FROZEN)
    check_flags(stages[0], target_trains=method == "byol")


def test_the_best_recipe_comes_as_documented_into_every_step(tmp_path: Path, stages: list[Stage]) -> None:
    photos = draw_photos(tmp_path / "photos", classes=6, photos=6)
    own = {**OPEN, "backbone": own_network(), "preprocessing": OWN_INPUTS}
    train(photos, out=tmp_path / "run", epochs=2, dim=8, **own)
    check_flags(stages[-1])
    learner, reader = stages[-1].parts.learner, stages[-1].parts.reader
    assert isinstance(learner, STML)
    assert isinstance(reader, CachedReader)
    assert (reader.views.crop_scale, reader.views.use_size) == ((0.4, 1.0), 41)
    assert (learner.settings.momentum, learner.settings.batches, learner.more_views) == (0.998, "whitened", ("center",))
    assert learner.criterion.k == 2 * stages[-1].parts.settings.per_query
    assert stages[-1].rates == [pytest.approx(rates) for rates in ([3e-5, 1e-4], [1.5e-5, 5e-5])]


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_a_step_of_a_compared_method_is_that_method_put_together_by_hand(
    photos: Path, tmp_path: Path, stages: list[Stage], method: str
) -> None:
    train(photos, out=tmp_path / "run", method=method, epochs=1, **TINY | {"quiet": True})
    (learner, images, _, losses), (after, *_) = stages[0].steps[1:]
    target = copy.deepcopy(learner.target.network)  # its statistics move when it is used
    head = learner.network.heads["f"](learner.network.encoder(images[:, 0]))
    if method == "moco":
        queries, keys = nn.functional.normalize(head), nn.functional.normalize(target(images[:, 1])["f"])
        assert len(learner.queue.rows) == 9600
        others = queries @ learner.queue.rows[:8].T  # the keys of the step before
        scores = torch.cat([(queries * keys).sum(1, keepdim=True), others], 1) / 0.07
        loss = nn.functional.cross_entropy(scores, torch.zeros(8, dtype=torch.long))
    else:
        loss = 2 - 2 * nn.functional.cosine_similarity(learner.predictor(head), target(images[:, 1])["f"]).mean()
    torch.testing.assert_close(losses[0], loss.detach(), rtol=1e-4, atol=1e-5)
    followed, student = learner.target.network.state_dict(), after.network.state_dict()
    for name, tensor in after.target.network.named_parameters():
        torch.testing.assert_close(tensor.data, 0.999 * followed[name] + 0.001 * student[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("change", [{}, {"train": "heads"}, {"rows_at_once": 6}], ids=str)
def test_a_run_that_goes_on_or_starts_from_another_has_the_flags_of_a_new_one(
    photos: Path, tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(4, patch)
        with pytest.raises(Interrupted):
            train(photos, out=tmp_path / "run", epochs=2, **FROZEN | change)
    train(resume=tmp_path / "run", quiet=True)
    train(resume=tmp_path / "run", epochs=3, quiet=True)
    again = {name: value for name, value in FROZEN.items() if name != "backbone"}
    train(photos, out=tmp_path / "next", from_run=tmp_path / "run", epochs=1, **again | change)
    assert [len(stage.steps) for stage in stages] == [4, 2, 3, 3]
    for stage in stages:
        check_flags(stage, heads_alone=change.get("train") == "heads")
    factors = [rates[0] / 1e-4 for stage in stages for rates in stage.rates]
    assert factors == pytest.approx([1] * 3 + [0.5] * 3 + [1] * 6)


def test_both_stages_of_semi_supervised_training_freeze_batch_norm(
    photos: Path, tmp_path: Path, stages: list[Stage]
) -> None:
    pytest.importorskip("pytorch_metric_learning")
    options = {name: value for name, value in TINY.items() if name != "recipe"} | {"quiet": True}
    unlabeled = draw_photos(tmp_path / "unlabeled", classes=2, photos=6)
    train(labeled=photos, unlabeled=unlabeled, out=tmp_path / "run", epochs=2, supervised_epochs=1, **options)
    for stage in stages:
        check_flags(stage)
    first, second = (stage.parts.learner for stage in stages)
    assert isinstance(second, STML)
    assert (second.criterion.sigma, second.settings.momentum) == (2.0, 0.9999)
    assert stages[0].parts.settings.method == "multi-similarity"
    start = stages[1].steps[0][0]
    for network in (start.network, start.teacher):
        ended = first.network.state_dict()
        assert all(torch.equal(ended[name], tensor) for name, tensor in network.state_dict().items())


def own_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 1))


@pytest.mark.parametrize("change", [{}, {"train": "heads"}], ids=str)
def test_what_a_caller_has_frozen_stays_so_and_their_module_comes_back_with_its_flags(
    photos: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    own = own_network()
    own[0].requires_grad_(False)
    before = {name: parameter.requires_grad for name, parameter in own.named_parameters()}
    start = copy.deepcopy(own.state_dict())
    train(photos, out=tmp_path / "run", preprocessing=OWN_INPUTS, epochs=1, **FROZEN | change | {"backbone": own})
    learned = {name for name, tensor in own.state_dict().items() if not torch.equal(tensor, start[name])}
    assert learned == (set() if change else {"3.weight", "3.bias"})
    assert {name: parameter.requires_grad for name, parameter in own.named_parameters()} == before


@pytest.mark.parametrize("change", [{}, {"train": "heads"}, {"precision": "bf16-mixed"}, {"method": "byol"}], ids=str)
@pytest.mark.parametrize("deliver", ["f", "whitened"])
def test_the_saved_model_gives_the_vectors_that_were_measured_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], deliver: str
) -> None:
    photos = draw_photos(tmp_path / "photos", classes=6, photos=6)
    measured: list[Tensor] = []
    for module in (evaluation, floor):
        score = module.score

        def note(vectors: Tensor, *others: Any, score: Any = score) -> Any:
            measured.append(vectors.clone())
            return score(vectors, *others)

        monkeypatch.setattr(module, "score", note)
    own = FROZEN | change | {"backbone": own_network(), "preprocessing": OWN_INPUTS, "deliver": deliver}
    train(photos, out=tmp_path / "run", eval=photos, epochs=1, use_size=40, **own)
    model = tmp_path / "run" / "trained" if (tmp_path / "run" / "trained").exists() else tmp_path / "run"
    vectors = Embedder.load(model, "cpu", own_network()).encode(find_images(photos).paths())
    torch.testing.assert_close(torch.as_tensor(vectors), measured[-1], rtol=1e-3, atol=1e-5)


def test_photos_that_are_learned_from_too_are_measured_in_full_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, score = draw_photos(tmp_path / "photos", classes=6, photos=6), vars(evaluation)["score"]
    measured: list[Tensor] = []

    def note(vectors: Tensor, *others: Any) -> Any:
        measured.append(vectors.clone())
        return score(vectors, *others)

    monkeypatch.setattr(evaluation, "score", note)
    own: dict[str, Any] = {"preprocessing": OWN_INPUTS, "deliver": "f", "workers": 0, "quiet": True}
    for precision in ("32-true", "bf16-mixed"):
        options = own | {"backbone": own_network(), "precision": precision}
        train(photos, out=tmp_path / precision, eval=photos, epochs=0, dim=8, **options)
    assert torch.equal(*measured)


def test_in_bfloat16_only_the_backbone_is_computed(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[set[torch.dtype]] = []
    real = STMLLoss.weights

    def weights(self: STMLLoss, teacher: Tensor, ids: Tensor | None = None) -> Tensor:
        found = real(self, teacher, ids)
        kinds.append({teacher.dtype, found.dtype})
        return found

    own, maps = own_network(), []
    own.register_forward_hook(lambda _module, _inputs, x: maps.append((own.training and x.requires_grad, x.dtype)))
    monkeypatch.setattr(STMLLoss, "weights", weights)
    options = FROZEN | {"backbone": own, "preprocessing": OWN_INPUTS, "precision": "bf16-mixed"}
    model = train(photos, out=tmp_path / "run", epochs=1, **options)
    assert {kind for learning, kind in maps if learning} == {torch.bfloat16}
    assert kinds == [{torch.float32}] * 3
    assert {tensor.dtype for tensor in model.network.parameters()} == {torch.float32}
