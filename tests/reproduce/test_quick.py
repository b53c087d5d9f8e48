from pathlib import Path

import pytest

from selftaught.data import find_images, make_products, open_images
from selftaught.reproduce.quick import Quick


def test_training_photos_can_have_class_folders_and_are_the_same_photos(tmp_path: Path) -> None:
    labeled, _ = make_products(tmp_path / "a", products=8, photos=2, class_folders=True)
    flat, _ = make_products(tmp_path / "b", products=8, photos=2)
    assert len(set(find_images(labeled).labels())) == 4
    contents = [sorted(path.read_bytes() for path in folder.rglob("*.jpg")) for folder in (labeled, flat)]
    assert contents[0] == contents[1]


def test_the_embedded_data_have_halves_of_disjoint_classes(tmp_path: Path) -> None:
    quick = Quick(products=12, photos=2)
    told: list[int] = []
    quick.draw(tmp_path / "photos", told.append)
    assert sum(told) == 24
    first, second, whole = (open_images(f"folder:{tmp_path / 'photos'}{end}") for end in (":train-a", ":train-b", ""))
    assert set(first.labels()).isdisjoint(second.labels())
    assert quick.counts("train") == {"images": len(whole)}
    assert quick.counts("labeled") == {"images": len(first)}
    assert quick.counts("both") == {"labeled": len(first), "unlabeled": len(second)}
    quick.draw(tmp_path / "photos", lambda _: pytest.fail("they are there already"))
