"""Small data sets in the layouts and index formats of the official archives."""

import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.io import savemat  # type: ignore[import-untyped,unused-ignore]


def touch(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


def write(file: Path, rows: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{row}\n" for row in rows))


def make_cub(root: Path, classes: Sequence[int] = (1, 2, 9, 100, 101, 200), photos: int = 2) -> Path:
    paths = [f"{c:03d}.Bird_{c}/Bird_{c}_{i:04d}.jpg" for c in classes for i in range(photos)]
    touch(root, *(f"images/{path}" for path in paths))
    write(root / "images.txt", [f"{i} {path}" for i, path in enumerate(paths, 1)])
    write(root / "image_class_labels.txt", [f"{i} {int(path[:3])}" for i, path in enumerate(paths, 1)])
    return root


def make_cars(root: Path, classes: Sequence[int] = (1, 98, 99, 196)) -> Path:
    paths = [f"car_ims/{i:06d}.jpg" for i in range(1, len(classes) + 1)]
    touch(root, *paths)
    fields = ("relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test")
    annotations = np.zeros((1, len(classes)), dtype=[(field, "O") for field in fields])
    for i, (path, number) in enumerate(zip(paths, classes, strict=True)):
        box = [np.array([[value]], np.uint8) for value in (1, 2, 30, 40)]
        annotations[0, i] = (path, *box, np.array([[number]], np.uint8), np.array([[0]], np.uint8))
    names = np.array([[f"Make Model {number}" for number in range(1, 197)]], dtype=object)
    savemat(root / "cars_annos.mat", {"annotations": annotations, "class_names": names})
    return root


def make_sop(root: Path, train: Sequence[int] = (1, 2, 10), test: Sequence[int] = (11319, 11320)) -> Path:
    kinds = ("bicycle", "sofa")
    for name, products in (("Ebay_train.txt", train), ("Ebay_test.txt", test)):
        paths = [(c, c % 2, f"{kinds[c % 2]}_final/{c}_{i}.JPG") for c in products for i in range(2)]
        touch(root, *(path for _, _, path in paths))
        rows = [f"{i} {c} {k + 1} {path}" for i, (c, k, path) in enumerate(paths, 1)]
        write(root / name, ["image_id class_id super_class_id path", *rows])
    return root


def make_nabirds(root: Path, classes: Sequence[int] = (295, 817, 1010), split: bool = True) -> Path:
    keys = [str(uuid.UUID(int=7919 * number)) for number in range(1, 2 * len(classes) + 1)]
    rows = [(key, classes[i // 2]) for i, key in enumerate(keys)]
    paths = [f"{number:04d}/{key.replace('-', '')}.jpg" for key, number in rows]
    touch(root, *(f"images/{path}" for path in paths))
    write(root / "images.txt", [f"{key} {path}" for key, path in zip(keys, paths, strict=True)])
    write(root / "image_class_labels.txt", [f"{key} {number}" for key, number in rows])
    write(root / "classes.txt", ["0 Birds", *(f"{number} Bird, Kind {number}" for number in classes)])
    if split:
        write(root / "train_test_split.txt", [f"{key} {1 - i % 2}" for i, key in enumerate(keys)])
    return root


def make_compcars(root: Path) -> Path:
    touch(root, *(f"image/{place}/a{i}.jpg" for place in ("9/1950/2013", "78/1/unknown", "78/3/2014") for i in (1, 2)))
    touch(root, "label/9/1950/2013/a1.txt", "misc/make_model_name.mat", "part/9/1950/2013/1/p.jpg")
    return root


def make_parts(root: Path) -> Path:
    touch(root, "train/cat/1.jpg", "train/dog/2.jpg", "train/owl/3.jpg", "test/wren/4.jpg", "test/wren/old/5.jpg")
    return root
