"""A made-up product: a silhouette of parts, three colors and a printed pattern, each with continuous parameters."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from selftaught.data.products.shapes import Array, box, ellipse, point, polygon, revolved, rgb, rotation, stroke

KINDS = ("mug", "bottle", "vase", "carton", "bag", "lamp", "cushion", "plant", "book", "shirt", "sock")
PATTERNS = ("stripes", "dots", "checks", "plaid", "waves", "zigzag", "diamonds", "flowers", "two-tone", "emblem")
PALETTE = rgb(
    "c8443a e07a3f eab543 f3d9a4 8fae5d 3f7d58 2f8f8b 8cc5c9 4a86b8 2c4a7c 6d5aa0 b488c2 d9698e f2b8b5 8a5a3c f4efe6 "
    "9a9ea3 3a3f47"
)
DARK, LEAF, PAPER = rgb("342e2c 467a3e f4f0e6")


@dataclass(frozen=True)
class Part:
    """A polygon in the product's own coordinates: x to the right, y down, about -1 to 1."""

    outline: Array
    color: int | Array | None = None
    """One of the product's colors, or another color; None for the product's pattern."""
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


def random_product(rng: Generator) -> Product:
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
            handle = stroke(ellipse(w * 0.9, 0, 0.34, h * 0.55, -math.pi / 2, math.pi / 2), 0.13)
            body = np.concatenate([ellipse(0, h, w * foot, 0.12, 0, math.pi), polygon((-w, -h), (w, -h))])
            rim, hollow = ellipse(0, -h, w, 0.13), ellipse(0, -h, w * 0.9, 0.1)
            return [Part(handle, 2, 0.4), Part(body, None, 1), Part(rim, 2), Part(hollow, DARK)]
        case "bottle":
            w, neck, shoulder = 0.3 + 0.2 * a, 0.11 + 0.08 * b, -0.5 + 0.5 * c
            body = revolved((-0.85, neck), (shoulder - 0.25, neck), (shoulder, w), (0.95, w), (1, w * 0.9))
            return [Part(body, None, 1), Part(box(-neck * 1.25, -1.05, neck * 1.25, -0.8), 2, 1)]
        case "vase":
            w, foot, lip = 0.45 + 0.3 * a, 0.2 + 0.25 * b, 0.18 + 0.25 * c
            body = revolved((-0.95, lip), (-0.65, lip * 0.75), (-0.2 + 0.5 * b, w), (0.7, foot), (0.95, foot))
            return [Part(body, None, 1), Part(ellipse(0, -0.95, lip, 0.07), DARK)]
        case "carton":
            w, h, d = 0.4 + 0.3 * a, 0.45 + 0.4 * b, 0.15 + 0.2 * c
            top = polygon((-w, -h), (w, -h), (w + d, -h - d * 0.7), (-w + d, -h - d * 0.7))
            side = polygon((w, -h), (w + d, -h - d * 0.7), (w + d, h - d * 0.7), (w, h))
            return [Part(top, 2, 0, 1.12), Part(side, 0, 0, 0.7), Part(box(-w, -h, w, h))]
        case "bag":
            w, h, loop = 0.5 + 0.25 * a, 0.5 + 0.2 * b, 0.35 + 0.3 * c
            back, front = (stroke(ellipse(0, y - h, w / 2, loop, math.pi, 2 * math.pi), 0.09) for y in (-0.06, 0.02))
            body = polygon((-w * 0.88, -h), (w * 0.88, -h), (w, h + 0.25), (-w, h + 0.25))
            return [Part(back, 2, 0, 0.75), Part(body, None, 0.3), Part(front, 2)]
        case "lamp":
            above, below, h = 0.25 + 0.25 * a, 0.6 + 0.2 * b, 0.05 + 0.35 * c
            stand = revolved((h, 0.06), (0.6, 0.06 + 0.12 * a), (0.9, 0.12 + 0.2 * b), (0.98, 0.3 + 0.15 * b))
            shade = polygon((-above, -0.95), (above, -0.95), (below, h), (-below, h))
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
                leaf = ellipse(0, -long / 2, 0.08 + 0.12 * b, long / 2) @ rotation(turn).T
                leaves.append(Part(leaf + point(0, 0.15), LEAF, 0.5, 0.8 + 0.12 * (i % 4)))
            pot = polygon((-w, 0.1), (w, 0.1), (w * 0.72, 0.1 + h), (-w * 0.72, 0.1 + h))
            return [*leaves, Part(pot, None, 1), Part(box(-w * 1.1, 0.02, w * 1.1, 0.16), 2, 1)]
        case "book":
            w, h, d = 0.5 + 0.2 * a, 0.7 + 0.25 * b, 0.06 + 0.1 * c
            pages = polygon((-w + 0.05, h), (w + d, h + d), (w + d, -h + d), (w, -h))
            spine = box(-w, -h, -w + 0.14, h)
            return [Part(pages, PAPER, 0, 0.92), Part(box(-w, -h, w, h)), Part(spine, 2, 0.6)]
        case "shirt":
            w, h, s = 0.45 + 0.12 * a, 0.75 + 0.2 * b, 0.1 + 0.45 * c
            right = [(0.2, -h), (w, -h + 0.1), (w + 0.4, s - 0.3), (w + 0.12, s - 0.15), (w, -0.25), (w, h)]
            outline = polygon(*right, *[(-x, y) for x, y in reversed(right)])
            return [Part(outline, None, 0.35), Part(ellipse(0, -h, 0.2, 0.14, 0, math.pi), 2)]
        case _:  # sock
            w, toe, h = 0.26 + 0.1 * a, 0.4 + 0.3 * b, 0.7 + 0.25 * c
            tip = ellipse(toe, 0.62, 0.27, 0.27, -math.pi / 2, math.pi / 2)
            leg = polygon((-0.5, -h), (2 * w - 0.5, -h), (2 * w - 0.45, 0.15), (toe, 0.35))
            body = np.concatenate([leg, tip, polygon((-0.3, 0.89), (-0.5, 0.6))])
            return [Part(body, None, 0.3), Part(tip, 2), Part(box(-0.53, -h, 2 * w - 0.47, -h + 0.2), 2)]


def pattern_at(u: Array, v: Array, p: Product) -> NDArray[np.integer]:
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
