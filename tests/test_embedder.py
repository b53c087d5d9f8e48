import copy
import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import current_process
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from conftest import TINY
from selftaught import Embedder, train
from selftaught.encoding import Encoding
from selftaught.errors import ImageError, SelftaughtError, UsageError
from selftaught.model_files import describe
from selftaught.networks import EmbeddingNetwork, Encoder, build_backbone, choose_exponent, whitened_layer


def test_paths_images_and_arrays_give_the_same_vectors(embedder: Embedder, photos: Path) -> None:
    paths = sorted(photos.rglob("*.jpg"))[:3]
    images = [Image.open(path) for path in paths]
    arrays = [np.asarray(image) for image in images]
    vectors = embedder.encode(paths)
    assert vectors.shape == (3, embedder.dim)
    assert (vectors.dtype, vectors.device.type) == (torch.float32, "cpu")
    sames: list[list[Any]] = [[str(path) for path in paths], images, arrays, [array / 255 for array in arrays]]
    for same in (*sames, [paths[0], images[1], arrays[2]]):
        torch.testing.assert_close(embedder.encode(same), vectors, rtol=1e-4, atol=1e-5)


def test_batches_and_worker_processes_change_nothing(embedder: Embedder, photos: Path) -> None:
    paths = sorted(photos.rglob("*.jpg")) * 4
    few = embedder.encode(paths[:24], batch_size=7)
    torch.testing.assert_close(embedder.encode(paths), few.repeat(4, 1), rtol=1e-4, atol=1e-5)


def test_a_process_that_may_start_no_others_reads_all_files_itself(
    embedder: Embedder, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sorted(photos.rglob("*.jpg")) * 4
    expected = embedder.encode(paths)
    monkeypatch.setitem(vars(current_process())["_config"], "daemon", True)  # as in a pool of processes
    torch.testing.assert_close(embedder.encode(paths), expected, rtol=1e-4, atol=1e-5)


def test_no_images_give_no_vectors_and_a_single_one_a_single_vector(embedder: Embedder, photos: Path) -> None:
    assert embedder.encode([]).shape == (0, embedder.dim)
    path = next(photos.rglob("*.jpg"))
    image = Image.open(path)
    several = embedder.encode([path])
    for single in (path, str(path), image, np.asarray(image)):
        assert torch.equal(embedder.encode(single), several[0])
    assert torch.equal(embedder.encode(np.array([str(path)])), several)


def test_a_generator_is_read_as_it_is_needed(embedder: Embedder, photos: Path) -> None:
    paths = sorted(photos.rglob("*.jpg"))
    ahead = most = 0

    def images(count: int, kind: str) -> Iterator[Any]:
        nonlocal ahead, most
        for number in range(count):
            ahead += 1
            most = max(most, ahead)
            path = paths[number % len(paths)]
            yield path if kind == "path" else Image.open(path)

    embed = Encoding.embed_views

    def counted(self: Encoding, batch: torch.Tensor) -> torch.Tensor:
        nonlocal ahead
        ahead -= len(batch)
        return embed(self, batch)

    expected = embedder.encode(paths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encoding, "embed_views", counted)
        for kind, count, limit in (("image", 60, 8), ("path", 200, 120)):
            ahead = most = 0
            vectors = embedder.encode(images(count, kind), batch_size=4)
            torch.testing.assert_close(vectors, expected.repeat(13, 1)[:count], rtol=1e-4, atol=1e-5)
            assert most <= limit


def test_an_image_alone_has_the_same_vector_as_in_a_batch(embedder: Embedder, photos: Path) -> None:
    paths = sorted(photos.rglob("*.jpg"))
    scale = embedder.encode(paths).norm(dim=1).max()
    alone = torch.stack([embedder.encode(path) for path in paths])
    assert (embedder.encode(paths) - alone).abs().max() < 1e-5 * scale


def test_threads_get_what_one_thread_gets(embedder: Embedder, photos: Path) -> None:
    paths = sorted(photos.rglob("*.jpg")) * 3
    expected = embedder.encode(paths)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(embedder.encode, [paths] * 8):
            torch.testing.assert_close(vectors, expected, rtol=1e-4, atol=1e-5)


def test_progress_is_shown_when_asked_for(
    embedder: Embedder, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("selftaught.console.PLAIN_INTERVAL", 0.0)
    paths = sorted(photos.rglob("*.jpg"))
    embedder.encode(paths)
    assert capsys.readouterr().err == ""
    embedder.encode(paths, batch_size=8, show_progress=True)
    assert "embedding images: 16/24" in capsys.readouterr().err
    embedder.encode(iter(paths), batch_size=8, show_progress=True)
    assert capsys.readouterr().err.splitlines()[1] == "embedding images: 16"


def test_an_image_without_pixels_is_refused(embedder: Embedder) -> None:
    for size in ((0, 0), (0, 9), (9, 0)):
        with pytest.raises(ImageError, match="pixels cannot be embedded"):
            embedder.encode(Image.new("RGB", size))


def test_an_opened_image_is_read_once_even_if_it_comes_several_times(embedder: Embedder, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (500, 500, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    expected = embedder.encode(noise)
    for _ in range(5):
        vectors = embedder.encode([Image.open(tmp_path / "noise.png")] * 8)
        torch.testing.assert_close(vectors, expected.expand(8, -1), rtol=1e-4, atol=1e-5)


def test_an_opened_image_that_is_damaged_is_named(embedder: Embedder, photos: Path, tmp_path: Path) -> None:
    whole = next(photos.rglob("*.jpg")).read_bytes()
    (tmp_path / "half.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImageError, match=r"cannot read .*half\.jpg: .*truncated"):
        embedder.encode([Image.open(tmp_path / "half.jpg")])


def test_similarity_is_the_cosine_or_the_negative_distance(embedder: Embedder, photos: Path) -> None:
    a, b = embedder.encode(sorted(photos.rglob("*.jpg"))[:5]).split([2, 3])
    torch.testing.assert_close(embedder.similarity(a, b), -torch.cdist(a, b), rtol=1e-4, atol=1e-5)
    assert embedder.similarity(a[0], b).shape == (1, 3)
    assert torch.equal(embedder.similarity(a.numpy(), b.numpy()), embedder.similarity(a, b))
    with pytest.raises(ValueError, match=r"are n×8, but these are \[2, 16\] and \[3, 8\]"):
        embedder.similarity(a.repeat(1, 2), b)
    whitened = embedder.whiten([str(path) for path in sorted(photos.rglob("*.jpg"))])
    wanted = torch.cosine_similarity(a[:, None], b[None], dim=2)
    torch.testing.assert_close(whitened.similarity(a, b), wanted, rtol=1e-4, atol=1e-5)


def mirrored(path: Path) -> Image.Image:
    return Image.open(path).transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def test_mirror_averages_an_image_and_its_mirror_image(embedder: Embedder, photos: Path) -> None:
    paths = sorted(photos.rglob("*.jpg"))[:4]
    both = embedder.seeing(mirror=True)
    wanted = (embedder.encode(paths) + embedder.encode([mirrored(path) for path in paths])) / 2
    torch.testing.assert_close(both.encode(paths), wanted, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(both.encode([mirrored(path) for path in paths]), wanted, rtol=1e-3, atol=1e-3)


def test_scales_average_vectors_of_several_sizes(embedder: Embedder) -> None:
    rough = np.random.default_rng(0).integers(0, 255, (8, 8, 3)).astype(np.uint8)
    image = Image.fromarray(rough).resize((200, 200), Image.Resampling.BICUBIC)
    use = embedder.preprocessing.use_size
    for scales, factors in ((2, (1, 1.25)), (3, (0.8, 1, 1.25))):
        parts = torch.stack([embedder.seeing(size=round(use * factor)).encode(image) for factor in factors])
        mean = parts.mean(0)
        apart = (embedder.seeing(scales=scales).encode(image) - mean).norm()
        assert apart < 0.2 * (parts - mean).norm(dim=1).min()


def test_several_views_of_a_cosine_model_have_length_1(embedder: Embedder, photos: Path) -> None:
    paths = [str(path) for path in sorted(photos.rglob("*.jpg"))]
    whitened = embedder.whiten(paths).seeing(mirror=True, scales=3)
    torch.testing.assert_close(whitened.encode(paths).norm(dim=1), torch.ones(len(paths)))


def test_whitening_is_that_of_the_vectors_and_can_be_saved(embedder: Embedder, photos: Path, tmp_path: Path) -> None:
    paths = [str(path) for path in sorted(photos.rglob("*.jpg"))]
    vectors = embedder.encode(paths)
    whitened = embedder.whiten(paths, dim=5)
    wanted = torch.nn.functional.normalize(whitened_layer(vectors, 5, choose_exponent(vectors))(vectors))
    torch.testing.assert_close(whitened.encode(paths), wanted, rtol=1e-3, atol=1e-3)
    whitened.save(tmp_path / "w")
    again = Embedder.load(tmp_path / "w", "cpu")
    assert (again.dim, again.metric, again.identity) == (5, "cosine", whitened.identity)
    torch.testing.assert_close(again.encode(paths), whitened.encode(paths), rtol=1e-4, atol=1e-5)
    for few in (paths[:1], []):
        with pytest.raises(SelftaughtError, match=f"at least 2 images that can be read, but there are {len(few)}"):
            embedder.whiten(few)


def test_identity_changes_with_whatever_changes_vectors(run: Path, embedder: Embedder, tmp_path: Path) -> None:
    assert Embedder.load(run, "cpu").identity == embedder.identity
    others = [embedder.seeing(size=80), embedder.seeing(mirror=True), embedder.seeing(scales=2)]
    other = Embedder.load(run, "cpu")
    next(iter(other.network.heads["f"].parameters())).data[0] += 1
    metric = Embedder(embedder.network, embedder.description | {"metric": "cosine"})
    assert len({each.identity for each in (embedder, *others, other, metric)}) == 6
    for each in others:
        each.save(tmp_path / "copy")
        assert Embedder.load(tmp_path / "copy", "cpu").identity == each.identity, "choices are saved"
    loaded = Embedder.load(run, "cpu", size=np.int64(80), mirror=np.bool_(True), scales=np.int64(3))  # type: ignore[arg-type]
    assert loaded.identity == embedder.seeing(80, True, 3).identity
    assert "seen at 64 and 80 and 100 pixels, mirrored" in repr(loaded)
    assert "small, recipe official: 8 dimensions compared by Euclidean distance" in repr(embedder)


def test_sizes_that_cannot_be_used_are_refused(embedder: Embedder) -> None:
    wrong: dict[str, list[Any]] = {"size": [0, -3, 10**6, 64.5, "64", [64]], "scales": [4, 0, "2", [2]]}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(UsageError, match=re.escape(f"but is {value!r}")):
                embedder.seeing(**{name: value})
    p = embedder.description["preprocessing"] | {"fixed_size": True}
    fixed = Embedder(embedder.network, embedder.description | {"preprocessing": p})
    others: list[dict[str, Any]] = [{"size": 99}, {"scales": 2}]
    for choice in others:
        with pytest.raises(UsageError, match="takes images of 32 pixels only"):
            fixed.seeing(**choice)


def test_a_vision_transformer_is_used_at_multiples_of_its_patches(tmp_path: Path) -> None:
    built = build_backbone("test_vit", "none")
    network = EmbeddingNetwork(Encoder(built.module, built.preprocessing), {"f": nn.Identity()})
    about: dict[str, Any] = {
        "backbone": "test_vit",
        "own_backbone": False,
        "head": "none",
        "settings": {"recipe": "none"},
    }
    model = Embedder(network.eval(), describe(network, dim=network.encoder.features, **about))
    assert model.seeing(scales=3).encoding.sides == [128, 160, 192]
    assert model.seeing(96).encode(Image.new("RGB", (120, 90))).shape == (model.dim,)
    with pytest.raises(UsageError, match="of 96 or 112 pixels, not of 100"):
        model.seeing(100)
    model.seeing(96).save(tmp_path / "model")
    assert Embedder.load(tmp_path / "model", "cpu").identity == model.seeing(96).identity


def test_a_model_with_undefined_numbers_is_refused(embedder: Embedder, tmp_path: Path) -> None:
    broken = copy.deepcopy(embedder.network)
    next(iter(broken.heads["f"].parameters())).data[0, 0] = torch.nan
    model = Embedder(broken, embedder.description)
    with pytest.raises(SelftaughtError, match="undefined vectors"):
        model.encode(Image.new("RGB", (50, 50)))
    model.save(tmp_path)
    with pytest.raises(SelftaughtError, match=r"model\.safetensors is damaged: .*undefined"):
        Embedder.load(tmp_path)


def test_a_file_that_cannot_be_read_is_named(embedder: Embedder, tmp_path: Path) -> None:
    gone: list[list[Any]] = [[tmp_path / "gone.jpg"], [tmp_path / "gone.jpg", Image.new("RGB", (9, 9))]]
    for images in gone:
        with pytest.raises(ImageError, match=r"gone\.jpg: no such file"):
            embedder.encode(images)


def test_what_is_no_image_and_what_is_no_run_is_named(embedder: Embedder) -> None:
    nothing: Any = None
    with pytest.raises(ImageError, match=r"images are paths, Pillow images or arrays, .* not None"):
        embedder.encode(nothing)
    for wrong in (3, None, ""):
        run: Any = wrong
        with pytest.raises(UsageError, match=f"there is no run {wrong!r}: give the folder of one"):
            Embedder.load(run)


def test_what_is_no_backbone_is_refused_and_not_blamed_on_the_model(run: Path) -> None:
    for wrong in (5, "small", nn.Linear):
        with pytest.raises(UsageError, match=f"backbone must be the module .* but is {re.escape(str(wrong))}"):
            Embedder.load(run, backbone=wrong)  # type: ignore[arg-type]


def test_an_unfinished_run_pools_as_it_learns(photos: Path, tmp_path: Path) -> None:
    model = train(photos, out=tmp_path, pooling="gem", deliver="f", epochs=1, quiet=True, **TINY)
    (tmp_path / "model.json").unlink()
    unfinished, paths = Embedder.load(tmp_path, "cpu"), sorted(photos.rglob("*.jpg"))[:4]
    assert unfinished.network.encoder.pooling == "gem"
    torch.testing.assert_close(unfinished.encode(paths), model.encode(paths), rtol=1e-4, atol=1e-5)


def test_an_unfinished_run_gives_the_model_of_its_checkpoint(
    run: Path, embedder: Embedder, photos: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    shutil.copytree(run, begun)
    for name in ("model.json", "model.safetensors"):
        (begun / name).unlink()
    model = Embedder.load(begun, "cpu")
    assert "unfinished, after epoch 2 of 2" in repr(model)
    paths = sorted(photos.rglob("*.jpg"))[:4]
    torch.testing.assert_close(model.encode(paths), embedder.encode(paths), rtol=1e-4, atol=1e-5)
    assert model.identity == embedder.identity
    model.save(tmp_path / "kept")
    assert torch.equal(Embedder.load(tmp_path / "kept", "cpu").encode(paths), model.encode(paths))
    (begun / "checkpoint.pt").unlink()
    with pytest.raises(UsageError, match="not even a checkpoint"):
        Embedder.load(begun)


def test_damaged_and_foreign_models_are_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    def broken(name: str, content: bytes) -> Path:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(run, tmp_path / "run")
        (tmp_path / "run" / name).write_bytes(content)
        return tmp_path / "run"

    weights, description = (run / "model.safetensors").read_bytes(), json.loads((run / "model.json").read_text())
    cases = [
        ("model.safetensors", weights[: len(weights) // 2], "cannot load"),
        ("model.json", b"{", "damaged"),
        ("model.json", json.dumps(description | {"format": 9}).encode(), "another version"),
        ("model.json", json.dumps(description | {"dim": 5}).encode(), "cannot load"),
        ("model.json", json.dumps(description | {"dim": "x"}).encode(), "does not describe"),
        ("model.json", json.dumps(description | {"backbone": 5}).encode(), "does not describe"),
        ("model.json", json.dumps(description | {"preprocessing": {"x": 1}}).encode(), "does not describe"),
        ("model.json", json.dumps(description | {"epoch": 1}).encode(), "epoch and epochs belong together"),
    ]
    for name, content, hint in cases:
        with pytest.raises(SelftaughtError, match=hint) as caught:
            Embedder.load(broken(name, content))
        assert "\n" not in str(caught.value)
    for device in ("warp", "cpu:5"):
        with pytest.raises(UsageError, match="no device"):
            Embedder.load(run, device=device)


def test_every_value_of_a_description_may_be_wrong_in_every_way(run: Path, tmp_path: Path) -> None:
    description = json.loads((run / "model.json").read_text())
    shutil.copy(run / "model.safetensors", tmp_path)
    wrong: list[Any] = [None, -5, 0, 1.5, 10**30, True, "x", "", [], [[]], {}, {"a": 1}]
    used = ["format", "backbone", "own_backbone", "dim", "head", "pooling", "metric", "preprocessing"]
    used += ["mirror", "scales"]
    changed = [description | {name: value} for name in used for value in wrong]
    inner = description["preprocessing"]
    changed += [description | {"preprocessing": inner | {name: value}} for name in [*inner, "new"] for value in wrong]
    changed.append(description | {"preprocessing": inner | {"mean": [10**400] * 3}})
    changed += [{k: v for k, v in description.items() if k != name} for name in used]
    texts = [json.dumps(content) for content in changed] + ["[" * 100_000, "[]", "5", "", '{"format": 1']
    messages = []
    for text in texts:
        (tmp_path / "model.json").write_text(text)
        try:
            assert Embedder.load(tmp_path, "cpu").encode(Image.new("RGB", (50, 50))).isfinite().all()
        except SelftaughtError as error:
            messages.append(str(error))
    assert len(messages) > 0.8 * len(texts)
    assert all("\n" not in message and len(message) < 500 for message in messages)


@pytest.mark.gpu
def test_images_in_memory_have_the_same_views_on_a_gpu(embedder: Embedder) -> None:
    rng = np.random.default_rng(0)
    shapes = [(40, 60, 3), (40, 60, 3), (70, 30, 3), (9, 9), (20, 20, 4), (1, 300, 3), (800, 700, 3)]
    shapes += [(80, 90, 3)] * 40
    images: list[Any] = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    images += [Image.fromarray(images[0]), images[2][:, ::-1]]
    here, there = (
        Embedder(copy.deepcopy(embedder.network).to(device), embedder.description) for device in ("cpu", "cuda")
    )
    views = [torch.cat([batch.images.cpu() for batch in one.encoding._see(images, 10)]) for one in (here, there)]
    assert torch.equal(*views)
    torch.testing.assert_close(there.encode(images), here.encode(images), rtol=1e-2, atol=1e-2)


def test_a_name_is_the_untrained_network_as_training_begins_with_it() -> None:
    lite, small = (Embedder.load(name, "cpu") for name in ("tf_efficientnet_lite0", "small"))
    assert lite.network.encoder.pooling == "gem"
    assert lite.preprocessing.use_size == 288
    assert small.network.encoder.pooling == "avg+max"
    plain = Embedder.plain("small", "cpu")
    assert plain.network.encoder.pooling == "avg"
    assert plain.preprocessing.use_size == plain.preprocessing.size
    assert len({model.identity for model in (small, plain)}) == 2
