from pathlib import Path

import pytest
import torch
from PIL import Image

from conftest import Call, draw_photos
from selftaught import Embedder
from selftaught.cli.explore import embed_versions
from selftaught.cli.model_use import embed_whitened
from selftaught.data import ImageFolder, find_images
from selftaught.errors import SelftaughtError


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> ImageFolder:
    return find_images(draw_photos(tmp_path_factory.mktemp("many"), classes=10, photos=4))


@pytest.fixture(scope="module")
def untrained() -> Embedder:
    return Embedder.untrained("small", "cpu")


def test_an_untrained_model_is_whitened_on_the_images_in_one_pass(untrained: Embedder, many: ImageFolder) -> None:
    model, images, vectors, skipped = embed_whitened(untrained, None, many, False)
    assert (len(images), skipped) == (40, [])
    twice = untrained.whiten(many.paths())
    assert model.description["whitened"] == twice.description["whitened"] == untrained.identity
    again = twice.encode(many.paths())  # fitted once more, so its directions may be turned by rounding, not its cosines
    torch.testing.assert_close(vectors @ vectors.T, again @ again.T, rtol=1e-3, atol=1e-3)
    mirrored, _, seen, _ = embed_whitened(untrained.seeing(mirror=True), None, many, False)
    torch.testing.assert_close(seen, mirrored.encode(many.paths()), rtol=1e-3, atol=1e-4)


def test_what_is_trained_or_little_or_not_to_be_whitened_stays_as_it_is(
    untrained: Embedder, embedder: Embedder, many: ImageFolder, photos: Path
) -> None:
    few = find_images(photos)
    for model, wanted, images in ((embedder, None, many), (untrained, None, few), (untrained, False, many)):
        assert embed_whitened(model, wanted, images, False)[0] is model
    assert embed_whitened(untrained, True, few, False)[0].description["whitened"] == untrained.identity


def test_photos_that_cannot_be_read_do_not_count_among_those_that_are_enough_to_whiten(
    untrained: Embedder, tmp_path: Path, call: Call
) -> None:
    images = find_images(draw_photos(tmp_path / "photos", classes=10, photos=3))
    Path(images.path(0)).write_text("no image")
    for model in (untrained, untrained.seeing(mirror=True)):
        assert embed_whitened(model, None, images, False)[0] is model
    pytest.importorskip("lancedb")
    code, text, log = call("index", "small", images.root, "--out", tmp_path / "index", "--device", "cpu")
    assert (code, "29 images written" in text, "--no-whiten" in log) == (0, True, False)


def test_photos_that_are_all_equal_are_not_whitened_unless_that_is_asked_for(
    untrained: Embedder, tmp_path: Path
) -> None:
    for number in range(40):
        Image.new("RGB", (50, 50), "red").save(tmp_path / f"{number}.png")
    images = find_images(tmp_path)
    for plain in (untrained, untrained.seeing(mirror=True)):
        model, _, vectors, _ = embed_whitened(plain, None, images, False)
        assert model is plain
        torch.testing.assert_close(vectors, model.encode(images.paths()))
        with pytest.raises(SelftaughtError, match="cannot whiten"):
            embed_whitened(plain, True, images, False)


def test_search_evaluate_and_cluster_say_that_they_whiten(many: ImageFolder, tmp_path: Path, call: Call) -> None:
    query, sheet = many.path(0), ("--out", tmp_path / "sheet.png")
    whitened = call("search", "small", query, "--in", many.root, "--device", "cpu", *sheet)
    plain = call("search", "small", query, "--in", many.root, "--device", "cpu", "--no-whiten", *sheet)
    assert (whitened[0], plain[0]) == (0, 0)
    assert "--no-whiten leaves them as they are" in whitened[2]
    assert "whiten" not in plain[2]
    assert whitened[1] != plain[1]
    for words in ((), ("--mirror",)):
        code, _, log = call("evaluate", "small", many.root, "--device", "cpu", "--no-floor", *words)
        assert (code, log.count("--no-whiten leaves them")) == (0, 1)
    for option, said in (((), 1), (("--no-whiten",), 0), (("--whiten",), 0)):
        out = tmp_path / f"groups{''.join(option)}"
        code, _, log = call("cluster", "small", many.root, "--out", out, "--device", "cpu", *option)
        assert (code, log.count("--no-whiten leaves them")) == (0, said)


def test_models_that_are_compared_on_the_page_are_whitened_only_if_that_is_asked_for(
    untrained: Embedder, many: ImageFolder
) -> None:
    pytest.importorskip("lancedb")
    models = {"before": untrained, "after": untrained.seeing(mirror=True)}
    assert [version.embedder for version in embed_versions(many, models, None, False).versions] == list(models.values())
    (alone,) = embed_versions(many, {"before": untrained}, None, False).versions
    assert "whitened" in alone.embedder.description
