"""A small data set drawn on the spot: made-up products, each in several photos. For the demo and for tests.

A product is a silhouette, three colors and a printed pattern, each with continuous parameters. A photo of it differs
from the next as photos of one thing do: distance, angle, light, the surface behind it, something in front of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Array = NDArray[np.float32]

SUPERSAMPLING = 2
KINDS = ("mug", "bottle", "vase", "carton", "bag", "lamp", "cushion", "plant", "book", "shirt", "sock")
PATTERNS = ("stripes", "dots", "checks", "plaid", "waves", "zigzag", "diamonds", "flowers", "two-tone", "emblem")


def _colors(codes: str) -> Array:
    return np.array([list(bytes.fromhex(code)) for code in codes.split()], np.float32)


PALETTE = _colors(
    "c8443a e07a3f eab543 f3d9a4 8fae5d 3f7d58 2f8f8b 8cc5c9 4a86b8 2c4a7c 6d5aa0 b488c2 d9698e f2b8b5 8a5a3c f4efe6 "
    "9a9ea3 3a3f47"
)
SURFACES = _colors("e1dad0 d7d1c6 cfc4b1 c3ae95 b09c88 a2a29f bfbebb e3e0da cecdce d7cbc3 c7cabb 959089")
DARK, LEAF, PAPER, STRING, SKIN = _colors("342e2c 467a3e f4f0e6 5a5046 e8b898")


def make_products(
    folder: Path,
    *,
    products: int = 240,
    photos: int = 8,
    size: int = 96,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Path, Path]:
    """Draw the data set into a new folder; the same seed gives the same files.

    Args:
        folder: must not exist yet, or be empty. It appears when all photos are drawn, or not at all.
        products: the first half is for training, the other half for testing.
        photos: of each product.
        size: height and width of a photo in pixels.
        seed: a photo depends on the seed, its product's number and its own number, and on nothing else.
        progress: called after each photo with (photos done, photos in all).

    Returns:
        The folder of training photos, flat and in no order, and the folder of test photos, one subfolder per product.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name a new folder, or delete this one first")
    if products < 2 or photos < 1:
        raise ValueError(f"there must be at least 2 products and 1 photo of each, not {products} and {photos}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    in_training = products // 2
    names = default_rng((seed, 0, 0)).permutation(in_training * photos)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        draft = Path(temporary, "draft")
        (draft / "train").mkdir(parents=True)
        for number in range(products):
            # From 1 on: zeros at the end of a seed change nothing, so photo 0 would share the stream of its product.
            product = _product(default_rng((seed, number + 1, 0)))
            for photo in range(photos):
                done = number * photos + photo
                if number < in_training:
                    path = draft / "train" / f"{names[done]:04d}.jpg"
                else:
                    path = draft / "test" / f"{product.kind}-{number:03d}" / f"{photo}.jpg"
                    path.parent.mkdir(parents=True, exist_ok=True)
                _photo(product, size, default_rng((seed, number + 1, photo + 1))).save(path, quality=92)
                if progress is not None:
                    progress(done + 1, products * photos)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    return folder / "train", folder / "test"


@dataclass(frozen=True)
class Part:
    """A polygon in the product's own coordinates: x to the right, y down, about -1 to 1."""

    outline: Array
    color: int | Array | None = None
    """One of the product's colors, or another; the product's pattern if none."""
    roundness: float = 0.0
    """How much the light falls off to the sides: 0 flat, 1 a cylinder."""
    light: float = 1.0


@dataclass(frozen=True)
class Product:
    kind: str
    parts: list[Part]
    colors: Array
    pattern: str
    frequency: float
    angle: float
    phase: float
    fill: float
    emblem: NDArray[np.bool_]


def _product(rng: Generator) -> Product:
    kind, pattern = KINDS[rng.integers(len(KINDS))], PATTERNS[rng.integers(len(PATTERNS))]
    colors = rng.choice(PALETTE, 3, replace=False) + rng.normal(0, 10, (3, 3))
    upright = pattern in ("two-tone", "emblem")
    half = rng.random((5, 3)) < 0.55
    return Product(
        kind=kind,
        parts=_parts(kind, *rng.random(3).tolist()),
        colors=np.clip(colors, 20, 250).astype(np.float32),
        pattern=pattern,
        frequency=rng.uniform(1.3, 3.0),
        angle=rng.normal(0, 0.06) + math.pi / 4 * int(rng.integers(1 if upright else 3)),
        phase=rng.random(),
        fill=rng.uniform(0.3, 0.6),
        emblem=np.hstack([half, half[:, 1::-1]]),
    )


def _parts(kind: str, a: float, b: float, c: float) -> list[Part]:
    """The parts of a product from back to front; a, b, c within [0, 1] are its proportions."""
    match kind:
        case "mug":
            w, h, foot = 0.5 + 0.2 * a, 0.5 + 0.35 * b, 0.75 + 0.25 * c
            handle = _stroke(_ellipse(w * 0.9, 0, 0.34, h * 0.55, -math.pi / 2, math.pi / 2), 0.13)
            body = np.concatenate([_ellipse(0, h, w * foot, 0.12, 0, math.pi), _polygon((-w, -h), (w, -h))])
            rim, hollow = _ellipse(0, -h, w, 0.13), _ellipse(0, -h, w * 0.9, 0.1)
            return [Part(handle, 2, 0.4), Part(body, None, 1), Part(rim, 2), Part(hollow, DARK)]
        case "bottle":
            w, neck, shoulder = 0.3 + 0.2 * a, 0.11 + 0.08 * b, -0.5 + 0.5 * c
            body = _turned((-0.85, neck), (shoulder - 0.25, neck), (shoulder, w), (0.95, w), (1, w * 0.9))
            return [Part(body, None, 1), Part(_box(-neck * 1.25, -1.05, neck * 1.25, -0.8), 2, 1)]
        case "vase":
            w, foot, lip = 0.45 + 0.3 * a, 0.2 + 0.25 * b, 0.18 + 0.25 * c
            body = _turned((-0.95, lip), (-0.65, lip * 0.75), (-0.2 + 0.5 * b, w), (0.7, foot), (0.95, foot))
            return [Part(body, None, 1), Part(_ellipse(0, -0.95, lip, 0.07), DARK)]
        case "carton":
            w, h, d = 0.4 + 0.3 * a, 0.45 + 0.4 * b, 0.15 + 0.2 * c
            top = _polygon((-w, -h), (w, -h), (w + d, -h - d * 0.7), (-w + d, -h - d * 0.7))
            side = _polygon((w, -h), (w + d, -h - d * 0.7), (w + d, h - d * 0.7), (w, h))
            return [Part(top, 2, 0, 1.12), Part(side, 0, 0, 0.7), Part(_box(-w, -h, w, h))]
        case "bag":
            w, h, loop = 0.5 + 0.25 * a, 0.5 + 0.2 * b, 0.35 + 0.3 * c
            back, front = (_stroke(_ellipse(0, y - h, w / 2, loop, math.pi, 2 * math.pi), 0.09) for y in (-0.06, 0.02))
            body = _polygon((-w * 0.88, -h), (w * 0.88, -h), (w, h + 0.25), (-w, h + 0.25))
            return [Part(back, 2, 0, 0.75), Part(body, None, 0.3), Part(front, 2)]
        case "lamp":
            above, below, h = 0.25 + 0.25 * a, 0.6 + 0.2 * b, 0.05 + 0.35 * c
            stand = _turned((h, 0.06), (0.6, 0.06 + 0.12 * a), (0.9, 0.12 + 0.2 * b), (0.98, 0.3 + 0.15 * b))
            shade = _polygon((-above, -0.95), (above, -0.95), (below, h), (-below, h))
            return [Part(stand, 2, 1), Part(shade, None, 0.6, 1.1)]
        case "cushion":
            t = np.linspace(-math.pi, math.pi, 80)
            x, y = np.cos(t), np.sin(t)
            corners = 1 + (0.2 + 0.12 * c) * (2 * x * y) ** 4
            outline = np.stack([(0.65 + 0.2 * a) * x * corners, (0.55 + 0.2 * b) * y * corners], 1).astype(np.float32)
            return [Part(outline * 1.06, 2, 0.5, 0.85), Part(outline, None, 0.5)]
        case "plant":
            w, h = 0.4 + 0.2 * a, 0.5 + 0.3 * b
            leaves = []
            for i, turn in enumerate(np.linspace(-1.2, 1.2, 5 + int(4 * c))):
                long = 0.75 + 0.2 * math.cos(9 * i + 6 * a)
                leaf = _ellipse(0, -long / 2, 0.08 + 0.12 * b, long / 2) @ _rotation(turn).T
                leaves.append(Part(leaf + _point(0, 0.15), LEAF, 0.5, 0.8 + 0.12 * (i % 4)))
            pot = _polygon((-w, 0.1), (w, 0.1), (w * 0.72, 0.1 + h), (-w * 0.72, 0.1 + h))
            return [*leaves, Part(pot, None, 1), Part(_box(-w * 1.1, 0.02, w * 1.1, 0.16), 2, 1)]
        case "book":
            w, h, d = 0.5 + 0.2 * a, 0.7 + 0.25 * b, 0.06 + 0.1 * c
            pages = _polygon((-w + 0.05, h), (w + d, h + d), (w + d, -h + d), (w, -h))
            spine = _box(-w, -h, -w + 0.14, h)
            return [Part(pages, PAPER, 0, 0.92), Part(_box(-w, -h, w, h)), Part(spine, 2, 0.6)]
        case "shirt":
            w, h, s = 0.45 + 0.12 * a, 0.75 + 0.2 * b, 0.1 + 0.45 * c
            right = [(0.2, -h), (w, -h + 0.1), (w + 0.4, s - 0.3), (w + 0.12, s - 0.15), (w, -0.25), (w, h)]
            outline = _polygon(*right, *[(-x, y) for x, y in reversed(right)])
            return [Part(outline, None, 0.35), Part(_ellipse(0, -h, 0.2, 0.14, 0, math.pi), 2)]
        case _:  # sock
            w, toe, h = 0.26 + 0.1 * a, 0.4 + 0.3 * b, 0.7 + 0.25 * c
            tip = _ellipse(toe, 0.62, 0.27, 0.27, -math.pi / 2, math.pi / 2)
            leg = _polygon((-0.5, -h), (2 * w - 0.5, -h), (2 * w - 0.45, 0.15), (toe, 0.35))
            body = np.concatenate([leg, tip, _polygon((-0.3, 0.89), (-0.5, 0.6))])
            return [Part(body, None, 0.3), Part(tip, 2), Part(_box(-0.53, -h, 2 * w - 0.47, -h + 0.2), 2)]


def _polygon(*points: tuple[float, float]) -> Array:
    return np.array(points, np.float32)


def _point(x: float, y: float) -> Array:
    return np.array([x, y], np.float32)


def _line(start: Array, end: Array) -> Array:
    return np.linspace(start, end, 5, dtype=np.float32)


def _box(x0: float, y0: float, x1: float, y1: float) -> Array:
    return _polygon((x0, y0), (x1, y0), (x1, y1), (x0, y1))


def _ellipse(x: float, y: float, rx: float, ry: float, start: float = 0, end: float = 2 * math.pi) -> Array:
    t = np.linspace(start, end, 40)
    return np.stack([x + rx * np.cos(t), y + ry * np.sin(t)], 1).astype(np.float32)


def _turned(*stations: tuple[float, float]) -> Array:
    """The outline of a body of revolution through (height, radius), smoothed between."""
    height, radius = (
        np.interp(np.linspace(0, 1, 60), np.linspace(0, 1, len(z)), z) for z in zip(*stations, strict=True)
    )
    radius = np.convolve(np.pad(radius, 3, mode="edge"), np.ones(7) / 7, "valid")
    right = np.stack([radius, height], 1)
    return np.concatenate([right, right[::-1] * [-1, 1]]).astype(np.float32)


def _stroke(line: Array, width: float) -> Array:
    """A line as a band of that width."""
    along = np.gradient(line, axis=0)
    across = along[:, ::-1] * [1, -1] / np.linalg.norm(along, axis=1, keepdims=True) * width / 2
    return np.concatenate([line + across, (line - across)[::-1]]).astype(np.float32)


def _rotation(angle: float) -> Array:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], np.float32)


def _pattern(u: Array, v: Array, p: Product) -> NDArray[np.integer]:
    """Which of the product's three colors is at (u, v), where a motif is about 1×1."""
    shifted = (u + 0.5 * (np.floor(v) % 2)) % 1 - 0.5
    x, y = u % 1 - 0.5, v % 1 - 0.5
    match p.pattern:
        case "stripes":
            return np.where(v % 1 < p.fill, 1, np.where((v + 0.2) % 1 < 0.1, 2, 0))
        case "dots":
            return np.where(np.hypot(shifted, y) < 0.15 + 0.4 * p.fill, 1, 0)
        case "checks":
            return ((np.floor(u) + np.floor(v)) % 2).astype(np.intp)
        case "plaid":
            return (u % 1 < p.fill * 0.7).astype(np.intp) + (v % 1 < p.fill * 0.7)
        case "waves":
            return np.where((v + 0.3 * np.sin(2 * math.pi * u * (0.5 + p.fill))) % 1 < p.fill, 1, 0)
        case "zigzag":
            return np.where((v + np.abs(x)) % 1 < p.fill, 1, 0)
        case "diamonds":
            far = np.abs(x) + np.abs(y)
            return np.where(far < 0.18, 2, np.where(far < 0.2 + 0.4 * p.fill, 1, 0))
        case "flowers":
            far, petals = np.hypot(shifted, y), 4 + int(4 * p.phase)
            return np.where(far < 0.11, 2, np.where(far < 0.28 + 0.12 * np.cos(np.arctan2(y, shifted) * petals), 1, 0))
        case "two-tone":
            height = v / p.frequency + p.fill - 0.45
            return np.where(height > 0.07, 1, np.where(height > -0.07, 2, 0))
        case _:  # emblem: marks on a label, one half mirrored, such as a crest
            u, v = u * 6 / p.frequency + 2.5, v * 6 / p.frequency + 2.5
            marked = p.emblem[v.astype(int).clip(0, 4), u.astype(int).clip(0, 4)]
            inside = np.maximum(np.abs(u - 2.5), np.abs(v - 2.5))
            return np.where((inside < 2.5) & marked, 2, np.where(inside < 2.9, 1, 0))


def _photo(product: Product, size: int, rng: Generator) -> Image.Image:
    side = size * SUPERSAMPLING
    canvas = np.asarray(_background(size, rng).resize((side, side), Image.Resampling.BICUBIC), np.float32)
    scale, from_left = rng.uniform(0.75, 1.0), rng.choice([-1, 1]).item()
    view = _rotation(rng.normal(0, 0.15)) @ (np.eye(2) + rng.normal(0, 0.05, (2, 2))) * scale
    camera, place = view.astype(np.float32), rng.uniform(-0.15, 0.15, 2).astype(np.float32)
    outlines = [part.outline @ camera.T + place for part in product.parts]

    shadow = Image.new("L", (size, size))
    for outline in outlines:
        _draw(shadow, outline + _point(0.1 * scale * from_left, 0.1 * scale))
    shadow = shadow.filter(ImageFilter.GaussianBlur(size / 16)).resize((side, side), Image.Resampling.BILINEAR)
    canvas = canvas * (1 - rng.uniform(0.25, 0.5) / 255 * np.asarray(shadow, np.float32)[..., None])

    x, y = _grid(side)
    back = np.linalg.inv(camera)
    for part, outline in zip(product.parts, outlines, strict=True):
        window, mask = _region(outline, side)
        dx, dy = x[window] - place[0], y[window] - place[1]
        u, v = back[0, 0] * dx + back[0, 1] * dy, back[1, 0] * dx + back[1, 1] * dy
        if part.color is None:
            turned = _rotation(-product.angle) * product.frequency
            index = _pattern(turned[0, 0] * u + turned[0, 1] * v, turned[1, 0] * u + turned[1, 1] * v, product)
            color = product.colors[index]
        else:
            color = product.colors[part.color] if isinstance(part.color, int) else part.color
        left, right = part.outline[:, 0].min(), part.outline[:, 0].max()
        across = (2 * u - left - right) / (right - left) * from_left
        light = part.light * (1 - part.roundness * 0.38 * np.minimum((across - 0.4) ** 2, 2))
        canvas[window] += mask * (color * light[..., None] - canvas[window])

    for outline, color in _cover(place, scale, rng):
        window, mask = _region(outline, side)
        canvas[window] += mask * (color - canvas[window])
    sharp = Image.fromarray(canvas.clip(0, 255).astype(np.uint8)).reduce(SUPERSAMPLING)

    # Light from one side, warm or cold, bright or dim; then the camera's noise.
    x, y = _grid(size)
    direction, warmth = rng.uniform(0, 2 * math.pi), rng.normal(0, 0.05)
    light = 1 + rng.uniform(0, 0.2) * (math.cos(direction) * x + math.sin(direction) * y)
    tint = rng.uniform(0.85, 1.12) * np.array([1 + warmth, 1, 1 - warmth], np.float32)
    lit = np.asarray(sharp, np.float32) * light[..., None] * tint + rng.normal(0, 3, (size, size, 3))
    return Image.fromarray(lit.clip(0, 255).astype(np.uint8))


def _grid(side: int) -> tuple[Array, Array]:
    line = np.linspace(-1, 1, side, dtype=np.float32)
    x, y = np.meshgrid(line, line)
    return x, y


def _draw(mask: Image.Image, outline: Array) -> None:
    points = (outline + 1) / 2 * mask.width
    ImageDraw.Draw(mask).polygon([(px, py) for px, py in points.tolist()], fill=255)


def _region(outline: Array, side: int) -> tuple[tuple[slice, slice], Array]:
    """The part of the picture that an outline touches, and how far it covers it, h×w×1."""
    mask = Image.new("L", (side, side))
    _draw(mask, outline)
    (left, top), (right, bottom) = (np.stack([outline.min(0), outline.max(0)]) + 1) / 2 * side
    window = np.s_[max(0, int(top)) : max(0, int(bottom) + 2), max(0, int(left)) : max(0, int(right) + 2)]
    covered: Array = np.asarray(mask, np.float32)[window][..., None] / np.float32(255)
    return window, covered


def _background(size: int, rng: Generator) -> Image.Image:
    """Plaster, planks, tiles, cloth, or a wall above a table, in quiet colors."""
    x, y = _grid(size)
    turned, period = _rotation(rng.uniform(-0.4, 0.4)), rng.uniform(0.25, 0.7)
    u, v = turned[0, 0] * x + turned[0, 1] * y, turned[1, 0] * x + turned[1, 1] * y
    first, second = rng.choice(SURFACES, 2, replace=False)
    phase = rng.uniform(0, 6)
    color = first
    match rng.integers(5):
        case 0:
            tone = 0.04 * y + 0.015 * np.sin(9 * u + 4 * np.sin(5 * v + phase)) * np.sin(8 * v)
        case 1:
            plank = np.floor(v / period)
            grain = np.sin(40 * v + 3 * np.sin(2 * u + 2.4 * plank + phase))
            tone = 0.02 * grain + 0.04 * np.sin(5.1 * plank + phase) - 0.13 * (v / period % 1 < 0.05)
        case 2:
            joint = (u / period % 1 < 0.06) | (v / period % 1 < 0.06)
            tone = 0.08 * joint + 0.02 * np.sin(3 * np.floor(u / period) + 5 * np.floor(v / period) + phase)
        case 3:
            tone = 0.025 * (np.sin(60 * u) + np.sin(60 * v)) + 0.04 * np.sin(3 * u + 2 * np.sin(2 * v) + phase)
        case _:
            table = y > rng.uniform(-0.2, 0.5)
            color = np.where(table[..., None], second, first)
            tone = np.where(table, 0.02 * np.sin(30 * y + 2 * np.sin(3 * x + phase)), -0.05)
    return Image.fromarray((color * (1 + tone[..., None])).clip(0, 255).astype(np.uint8))


def _cover(place: Array, scale: float, rng: Generator) -> list[tuple[Array, Array]]:
    """Sometimes something is in front of the product: a price tag, fingers, a ribbon."""
    away = _rotation(rng.uniform(0, 2 * math.pi))[0]
    aside = _point(-away[1], away[0])
    spot = place + away * (scale * rng.uniform(0.2, 0.6))
    color = rng.choice(PALETTE)
    match rng.choice(4, p=[0.64, 0.12, 0.12, 0.12]):
        case 0:
            return []
        case 1:
            string = _stroke(_line(spot, spot + _point(0.1, -0.35)), 0.02)
            lines = [_box(-0.11, y, w, y + 0.03) + spot for y, w in ((-0.04, 0.1), (0.03, 0.04))]
            tag = _box(-0.16, -0.1, 0.16, 0.12) + spot
            return [(string, STRING), (tag, PAPER), *((line, STRING) for line in lines)]
        case 2:
            skin = rng.uniform(0.45, 1.05) * SKIN
            hand = []
            for i in (-1, 0, 1):
                tip = spot + 0.17 * i * aside + 0.08 * abs(i) * away
                finger = _line(tip, tip + 2 * away)
                hand += [(_stroke(finger, 0.18), 0.8 * skin), (_ellipse(tip[0], tip[1], 0.09, 0.09), 0.8 * skin)]
                hand += [(_stroke(finger, 0.15), skin), (_ellipse(tip[0], tip[1], 0.075, 0.075), skin)]
                hand += [(_ellipse(tip[0], tip[1], 0.045, 0.045), 0.85 * skin + 36)]
            return hand
        case _:
            ribbon = _line(spot - 3 * aside, spot + 3 * aside)
            return [(_stroke(ribbon, rng.uniform(0.08, 0.2)), color)]
