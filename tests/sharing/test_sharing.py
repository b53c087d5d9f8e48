import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import timm
import torch
from huggingface_hub import ModelCard
from huggingface_hub.errors import LocalTokenNotFoundError, RepositoryNotFoundError
from timm.data.config import resolve_model_data_config
from timm.data.transforms_factory import create_transform
from torch import Tensor
from torch.nn import functional as F

from conftest import TINY, Call
from selftaught import Embedder, train
from selftaught.data import draw_photos, find_images
from selftaught.errors import SelftaughtError, UsageError
from selftaught.model_files import describe
from selftaught.networks import HEADS, EmbeddingNetwork, Encoder, Preprocessing, build_backbone, timm_form
from selftaught.sharing import Shared, hub

SMALLEST = Preprocessing(size=64, mean=(127, 127, 127), std=(128, 128, 128), value_range=255)


def make(
    name: str = "resnet10t", head: str = "linear", pooling: Any = "avg+max", metric: str = "euclidean"
) -> Embedder:
    """An untrained model of one of timm's small networks."""
    torch.manual_seed(0)
    encoder = Encoder(build_backbone(name, "none").module, SMALLEST, pooling=pooling)
    dim = encoder.features if head == "none" else 12
    network = EmbeddingNetwork(encoder, {"f": HEADS[head](encoder.features, dim)}, normalize=metric == "cosine")
    about = describe(network, backbone=name, own_backbone=False, dim=dim, head=head, settings={"recipe": "official"})
    return Embedder(network, about)


MODELS = [("linear", "avg+max", "euclidean"), ("linear", "avg", "cosine"), ("none", "avg", "cosine")]


@pytest.fixture(scope="module", params=MODELS, ids=" ".join)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Embedder, Shared]:
    embedder = make("resnet10t", *request.param)
    return embedder, embedder.save(tmp_path_factory.mktemp("shared") / "model")


def inputs_of(embedder: Embedder) -> tuple[Tensor, Tensor]:
    """What a network sees of drawn photos, and the model's vectors of them."""
    photos = draw_photos(3)
    views = torch.cat([embedder.encoding.views(photo, "center") for photo in photos])
    return embedder.preprocessing(views), embedder.encode(photos)


def test_a_saved_model_is_the_same_model_to_the_bit(shared: tuple[Embedder, Shared]) -> None:
    embedder, written = shared
    again = Embedder.load(written.folder, "cpu")
    assert again.identity == embedder.identity
    for name, tensor in embedder.network.state_dict().items():
        assert torch.equal(tensor, again.network.state_dict()[name])


def test_timm_loads_the_folder_and_gives_the_same_vectors(shared: tuple[Embedder, Shared]) -> None:
    embedder, written = shared
    assert written.why_not is None
    model: Any = timm.create_model(f"local-dir:{written.folder}", pretrained=True).eval()
    inputs, wanted = inputs_of(embedder)
    with torch.no_grad():
        vectors = model(inputs)
    vectors = F.normalize(vectors) if embedder.metric == "cosine" else vectors
    torch.testing.assert_close(vectors, wanted, rtol=1e-4, atol=1e-4)


def test_timm_resizes_as_the_card_says(shared: tuple[Embedder, Shared]) -> None:
    embedder, written = shared
    model: Any = timm.create_model(f"local-dir:{written.folder}", pretrained=True).eval()
    transform = create_transform(**resolve_model_data_config(model))
    photos = draw_photos()
    with torch.no_grad():
        vectors = model(torch.stack([transform(photo) for photo in photos]))
    cosine = float(F.cosine_similarity(vectors, embedder.encode(photos)).min())
    told = [words for words in written.parity.values() if "cosine" in words]
    assert told == [f"cosine at least {cosine:.4f} on drawn photos; of other photos it can be lower"]
    assert cosine > 0.9
    card = (written.folder / "README.md").read_text("utf-8")
    assert all(words in card for words in written.parity.values())


def test_transformers_loads_the_folder_and_gives_the_same_vectors(shared: tuple[Embedder, Shared]) -> None:
    transformers = pytest.importorskip("transformers", reason="needs selftaught[share]")
    embedder, written = shared
    inputs, wanted = inputs_of(embedder)
    with torch.no_grad():
        if embedder.description["head"] == "none":
            vectors = transformers.AutoModel.from_pretrained(written.folder).eval()(pixel_values=inputs).pooler_output
        else:
            model = transformers.AutoModelForImageClassification.from_pretrained(written.folder).eval()
            vectors = model(pixel_values=inputs).logits
    vectors = F.normalize(vectors) if embedder.metric == "cosine" else vectors
    torch.testing.assert_close(vectors, wanted, rtol=1e-4, atol=1e-4)
    processor = transformers.AutoImageProcessor.from_pretrained(written.folder)
    assert processor(draw_photos(1)[0])["pixel_values"].shape == (1, 3, 64, 64)


def test_sentence_transformers_loads_the_folder_and_gives_the_same_vectors(shared: tuple[Embedder, Shared]) -> None:
    library = pytest.importorskip("sentence_transformers", reason="needs selftaught[share]")
    embedder, written = shared
    model = library.SentenceTransformer(str(written.folder), device="cpu")
    timm_model: Any = timm.create_model(f"local-dir:{written.folder}", pretrained=True).eval()
    transform = create_transform(**resolve_model_data_config(timm_model))
    photos = draw_photos(3)
    with torch.no_grad():
        wanted = timm_model(torch.stack([transform(photo) for photo in photos]))
    wanted = F.normalize(wanted) if embedder.metric == "cosine" else wanted
    vectors = torch.from_numpy(model.encode(photos))
    torch.testing.assert_close(vectors, wanted, rtol=1e-4, atol=1e-4)  # the same resizing, so all of it is compared
    assert model.similarity_fn_name == embedder.metric


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "regnety_002", "vit_tiny_patch16_224"])
def test_more_networks_are_the_same_in_timm(name: str) -> None:
    built = build_backbone(name, "none")
    inputs = replace(built.preprocessing, use_size=208) if built.preprocessing.multiple > 1 else SMALLEST
    encoder = Encoder(built.module, inputs)
    form = timm_form(EmbeddingNetwork(encoder, {"f": HEADS["linear"](encoder.features, 8)}).eval(), name)
    assert not isinstance(form, str), form


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (("small",), "not one of timm's"),
        (("resnet10t", "mlp"), "more than one layer"),
        (("resnet10t", "none", "avg+max"), "average plus maximum"),
        (("resnet10t", "linear", "gem"), "generalized mean"),
        (("mobilenetv3_small_050",), "last layer"),
        (("convnext_atto",), "last layer"),
    ],
)
def test_a_model_that_is_none_of_timms_says_why_and_loads_as_it_is(
    model: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    embedder = make(*model)
    written = embedder.save(tmp_path / "model")
    assert written.why_not is not None
    assert reason in written.why_not
    assert written.why_not in (tmp_path / "model" / "README.md").read_text("utf-8")
    assert not (tmp_path / "model" / "config.json").exists()
    assert Embedder.load(tmp_path / "model", "cpu").identity == embedder.identity


def test_averaged_views_are_selftaughts_alone(tmp_path: Path) -> None:
    written = make().seeing(mirror=True).save(tmp_path / "model")
    assert written.why_not == "it averages several views of an image"
    assert Embedder.load(tmp_path / "model", "cpu").mirror


def test_the_card_tells_data_recipe_verdict_scores_use_and_license(run: Path, photos: Path, tmp_path: Path) -> None:
    Embedder.load(run, "cpu").save(tmp_path / "model", license="cc-by-4.0")
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert card.data.license == "cc-by-4.0"
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    for part in (
        f"`{photos.name}`",
        "recipe `official`",
        "Recall@1",
        f"{last['map@r']:.1%}",
        "Embedder.load",
        "cc-by-4.0",
    ):
        assert part in card.text
    Embedder.load(tmp_path / "model", "cpu").save(tmp_path / "again")  # what is known of the training travels along
    assert f"{last['map@r']:.1%}" in (tmp_path / "again" / "README.md").read_text("utf-8")
    assert "ask them" in (tmp_path / "again" / "README.md").read_text("utf-8")


def test_the_verdict_names_what_the_backbone_gives_without_training(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    rows = {"plain backbone": {"recall@1": 0.4321}, "trained": {"recall@1": 0.5}, "damaged": None}
    (tmp_path / "run" / "models.json").write_text(json.dumps({"floor": "plain backbone", "models": rows}))
    Embedder.load(tmp_path / "run", "cpu").save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "Without any training: 43.2% (plain backbone)." in card
    assert "43.2% before, 50.0% after" in card, "of the finished model, not of the last epoch"
    assert "| | without training: plain backbone | after training |" in card
    assert "| recall@1 | 43.2% | 50.0% |" in card
    assert "effective rank" not in card, "which is that of other networks than these two"
    rows = {"plain backbone": {"recall@1": 0.6}, "half-whitened": {"recall@1": 0.4}, "trained": {"recall@1": 0.5}}
    (tmp_path / "run" / "models.json").write_text(json.dumps({"floor": "half-whitened", "models": rows}))
    Embedder.load(tmp_path / "run", "cpu").save(tmp_path / "worse")
    card = (tmp_path / "worse" / "README.md").read_text("utf-8")
    assert "lowered Recall@1 on the labeled images it was measured on: 60.0% before at best, 50.0% after" in card


def test_the_card_of_an_untrained_model_that_a_run_serves_says_so(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    rows = {"plain backbone": {"recall@1": 0.4}, "trained": {"recall@1": 0.3}}
    (tmp_path / "run" / "models.json").write_text(json.dumps({"floor": "plain backbone", "models": rows}))
    about = tmp_path / "run" / "model.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"trained": False}))
    Embedder.load(tmp_path / "run", "cpu").save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "Trained on" not in card
    assert "so this is the model without that training" in card
    assert "40.0% before, 30.0% after. This is the model before." in card


def test_the_card_of_an_untrained_network_says_whether_it_is_whitened(photos: Path, tmp_path: Path) -> None:
    untrained = Embedder.untrained("small", "cpu")
    whitened = untrained.whiten(find_images(photos).paths())
    for model, told in ((untrained, "small; it was"), (whitened, "small, its features half-whitened on ")):
        model.save(tmp_path / "model")
        card = (tmp_path / "model" / "README.md").read_text("utf-8")
        assert told in card


def test_without_labels_the_card_promises_nothing(photos: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "run", epochs=1, quiet=True, **TINY)
    Embedder.load(tmp_path / "run", "cpu").save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "not measured whether training has helped" in card
    assert "effective rank" in card
    assert "view agreement" not in card, "which misleads"
    rows = {"plain backbone": {"found_again": 0.8}, "trained": {"found_again": 0.9}}
    (tmp_path / "run" / "models.json").write_text(json.dumps({"floor": "plain backbone", "models": rows}))
    Embedder.load(tmp_path / "run", "cpu").save(tmp_path / "compared")
    assert "80.0% of the time before, 90.0% after" in (tmp_path / "compared" / "README.md").read_text("utf-8")


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The hub as a folder."""
    place = tmp_path / "hub"

    def create(name: str, *, private: bool, exist_ok: bool) -> str:
        (place / name).mkdir(parents=True, exist_ok=exist_ok)
        (place / name / "private").write_text(str(private))
        return f"hub:{name}"

    def upload(*, repo_id: str, folder_path: Path, commit_message: str) -> None:
        assert commit_message
        shutil.copytree(folder_path, place / repo_id, dirs_exist_ok=True)

    def fetch(name: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        assert {"model.json", "model.safetensors"} <= set(allow_patterns)
        assert not local_files_only
        if not (place / name).is_dir():
            raise RepositoryNotFoundError("404", response=Response())  # type: ignore[arg-type]
        return str(place / name)

    monkeypatch.setattr(hub, "hub_reachable", lambda: True)
    monkeypatch.setattr(huggingface_hub, "create_repo", create)
    monkeypatch.setattr(huggingface_hub, "upload_folder", upload)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    return place


class Response:
    """As much of an answer as the hub's errors look at."""

    headers: dict[str, str] = {}  # noqa: RUF012
    request = None


def test_a_model_goes_to_the_hub_and_comes_back(embedder: Embedder, fake_hub: Path) -> None:
    assert embedder.push_to_hub("someone/birds") == "hub:someone/birds"
    assert (fake_hub / "someone" / "birds" / "private").read_text() == "True"
    assert (fake_hub / "someone" / "birds" / "README.md").is_file()
    assert Embedder.load("someone/birds", "cpu").identity == embedder.identity


def test_what_the_hub_refuses_is_one_sentence(
    embedder: Embedder, fake_hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not fake_hub.exists()
    with pytest.raises(UsageError, match="no public model of the hub of that name"):
        Embedder.load("someone/fish")
    with pytest.raises(UsageError, match="give user/name"):
        embedder.push_to_hub("birds")

    def nobody(*_: object, **__: object) -> None:
        raise LocalTokenNotFoundError("no token")

    monkeypatch.setattr(huggingface_hub, "create_repo", nobody)
    with pytest.raises(UsageError, match="hf auth login"):
        embedder.push_to_hub("someone/birds")

    def lose(*_: object, **__: object) -> None:
        raise type("ConnectError", (Exception,), {})("connection reset\nby peer")  # as the hub's library raises it

    monkeypatch.setattr(huggingface_hub, "create_repo", lose)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lose)
    with pytest.raises(SelftaughtError, match="someone/birds was not uploaded: connection reset by peer"):
        embedder.push_to_hub("someone/birds")
    with pytest.raises(SelftaughtError, match="no model of that name could be fetched: connection reset by peer"):
        Embedder.load("someone/fish")
    monkeypatch.setattr(hub, "hub_reachable", lambda: False)
    with pytest.raises(SelftaughtError, match="cannot be reached"):
        embedder.push_to_hub("someone/birds")


def test_without_the_hub_a_name_is_looked_for_among_what_was_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "hub_reachable", lambda: False)
    with pytest.raises(SelftaughtError, match=r"someone/no-such-model.*cannot be reached") as caught:
        Embedder.load("someone/no-such-model")
    assert "\n" not in str(caught.value)


def test_the_command_shares_a_folder_or_to_the_hub(call: Call, run: Path, fake_hub: Path, tmp_path: Path) -> None:
    code, out, _ = call("share", run, "--out", tmp_path / "shared", "--license", "mit")
    assert code == 0
    assert "not one of timm's" in out
    assert "license: mit" in (tmp_path / "shared" / "README.md").read_text("utf-8")
    assert call("share", run, "--push", "someone/birds", "--public")[:2] == (0, "uploaded: hub:someone/birds\n")
    assert (fake_hub / "someone" / "birds" / "private").read_text() == "False"
    for words, hint in (
        ([run], "say where to"),
        ([run, "--out", tmp_path / "shared"], "not empty"),
        ([run, "--out", tmp_path / "x", "--push", "a/b"], "say where to"),
    ):
        code, _, err = call("share", *words)
        assert code == 2
        assert hint in err


def test_the_commands_of_the_documentation_work(
    call: Call, run: Path, fake_hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "share.md").read_text("utf-8")
    lines = re.findall(r"^selftaught (share [^#]*)", page, re.MULTILINE)
    assert len(lines) == 2
    monkeypatch.chdir(tmp_path)
    for line in lines:
        assert call(*[{"RUN": str(run)}.get(word, word) for word in line.split()])[0] == 0
    assert (tmp_path / "folder" / "README.md").is_file()
    assert (fake_hub / "user" / "name" / "README.md").is_file()
