from pathlib import Path

import pytest
import torch
from PIL import Image

from conftest import Call, draw_photos
from selftaught import Embedder
from selftaught.cli.model_use import embed_whitened
from selftaught.data import ImageFolder, find_images


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
    assert model.identity == twice.identity
    torch.testing.assert_close(vectors, twice.encode(many.paths()), rtol=1e-3, atol=1e-4)
    mirrored, _, seen, _ = embed_whitened(untrained.seeing(mirror=True), None, many, False)
    torch.testing.assert_close(seen, mirrored.encode(many.paths()), rtol=1e-3, atol=1e-4)


def test_what_is_trained_or_little_or_not_to_be_whitened_stays_as_it_is(
    untrained: Embedder, embedder: Embedder, many: ImageFolder, photos: Path
) -> None:
    few = find_images(photos)
    for model, wanted, images in ((embedder, None, many), (untrained, None, few), (untrained, False, many)):
        assert embed_whitened(model, wanted, images, False)[0] is model
    assert embed_whitened(untrained, True, few, False)[0].description["whitened"] == untrained.identity


def test_photos_that_are_all_equal_are_not_whitened_unless_that_is_asked_for(
    untrained: Embedder, tmp_path: Path
) -> None:
    for number in range(40):
        Image.new("RGB", (50, 50), "red").save(tmp_path / f"{number}.png")
    model, _, vectors, _ = embed_whitened(untrained, None, find_images(tmp_path), False)
    assert vectors.isfinite().all()
    torch.testing.assert_close(vectors, model.encode(find_images(tmp_path).paths()))


def test_search_and_evaluate_say_that_they_whiten(many: ImageFolder, tmp_path: Path, call: Call) -> None:
    query, sheet = many.path(0), ("--out", tmp_path / "sheet.png")
    whitened = call("search", "small", query, "--in", many.root, "--device", "cpu", *sheet)
    plain = call("search", "small", query, "--in", many.root, "--device", "cpu", "--no-whiten", *sheet)
    assert (whitened[0], plain[0]) == (0, 0)
    assert "--no-whiten leaves them as they are" in whitened[2]
    assert "whiten" not in plain[2]
    assert whitened[1] != plain[1]
    assert "--no-whiten leaves them" in call("evaluate", "small", many.root, "--device", "cpu", "--no-floor")[2]
