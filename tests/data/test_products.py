from pathlib import Path

import pytest
from PIL import Image

from selftaught.data import find_images
from selftaught.data.products import make_products


def test_half_of_the_products_are_for_training_without_labels(tmp_path: Path) -> None:
    train, test = make_products(tmp_path / "photos", products=8, photos=3)
    assert len(find_images(train)) == len(find_images(test)) == 12
    assert all("/" not in name for name in find_images(train).files), "no class folders to learn from"
    assert len(set(find_images(test).labels())) == 4
    with Image.open(find_images(test).path(0)) as photo:
        assert photo.size == (96, 96)


def test_a_photo_depends_on_the_seed_and_its_number_alone(tmp_path: Path) -> None:
    _, first = make_products(tmp_path / "a", products=8, photos=3)
    _, again = make_products(tmp_path / "b", products=8, photos=2)
    _, other = make_products(tmp_path / "c", products=8, photos=2, seed=1)
    for name in find_images(again).files:
        assert (again / name).read_bytes() == (first / name).read_bytes()
    photos = {path.read_bytes() for folder in (first, other) for path in folder.rglob("*.jpg")}
    assert len(photos) == 12 + 8, "no two photos are the same"


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(FileExistsError):
        make_products(tmp_path, products=4, photos=1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
