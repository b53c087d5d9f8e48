"""A photo of a product; photos of one product differ in distance, angle, light, surface and what covers it."""

import math

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFilter

from selftaught.data.products.product import PALETTE, PAPER, Product, pattern_at
from selftaught.data.products.shapes import Array, box, ellipse, line, point, rgb, rotation, stroke

SUPERSAMPLING = 2
SURFACES = rgb("e1dad0 d7d1c6 cfc4b1 c3ae95 b09c88 a2a29f bfbebb e3e0da cecdce d7cbc3 c7cabb 959089")
STRING, SKIN = rgb("5a5046 e8b898")


def take_photo(product: Product, size: int, rng: Generator) -> Image.Image:
    side = size * SUPERSAMPLING
    canvas = np.asarray(_background(size, rng).resize((side, side), Image.Resampling.BICUBIC), np.float32)
    scale, from_left = rng.uniform(0.75, 1.0), rng.choice([-1, 1]).item()
    view = rotation(rng.normal(0, 0.15)) @ (np.eye(2) + rng.normal(0, 0.05, (2, 2))) * scale
    camera, place = view.astype(np.float32), rng.uniform(-0.15, 0.15, 2).astype(np.float32)
    outlines = [part.outline @ camera.T + place for part in product.parts]

    shadow = Image.new("L", (size, size))
    for outline in outlines:
        _draw(shadow, outline + point(0.1 * scale * from_left, 0.1 * scale))
    shadow = shadow.filter(ImageFilter.GaussianBlur(size / 16)).resize((side, side), Image.Resampling.BILINEAR)
    canvas = canvas * (1 - rng.uniform(0.25, 0.5) / 255 * np.asarray(shadow, np.float32)[..., None])

    x, y = _grid(side)
    back = np.linalg.inv(camera)
    for part, outline in zip(product.parts, outlines, strict=True):
        window, mask = _region(outline, side)
        dx, dy = x[window] - place[0], y[window] - place[1]
        u, v = back[0, 0] * dx + back[0, 1] * dy, back[1, 0] * dx + back[1, 1] * dy
        if part.color is None:
            turned = rotation(-product.angle) * product.frequency
            index = pattern_at(turned[0, 0] * u + turned[0, 1] * v, turned[1, 0] * u + turned[1, 1] * v, product)
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
    """The part of the picture that an outline touches, and how far it covers each pixel, h×w×1."""
    mask = Image.new("L", (side, side))
    _draw(mask, outline)
    (left, top), (right, bottom) = (np.stack([outline.min(0), outline.max(0)]) + 1) / 2 * side
    window = np.s_[max(0, int(top)) : max(0, int(bottom) + 2), max(0, int(left)) : max(0, int(right) + 2)]
    covered: Array = np.asarray(mask, np.float32)[window][..., None] / np.float32(255)
    return window, covered


def _background(size: int, rng: Generator) -> Image.Image:
    """A picture of plaster, planks, tiles, cloth, or a wall above a table, in quiet colors."""
    x, y = _grid(size)
    turned, period = rotation(rng.uniform(-0.4, 0.4)), rng.uniform(0.25, 0.7)
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
    """The outlines and colors of what covers the product: a price tag, fingers, a ribbon, or nothing."""
    away = rotation(rng.uniform(0, 2 * math.pi))[0]
    aside = point(-away[1], away[0])
    spot = place + away * (scale * rng.uniform(0.2, 0.6))
    color = rng.choice(PALETTE)
    match rng.choice(4, p=[0.64, 0.12, 0.12, 0.12]):
        case 0:
            return []
        case 1:
            string = stroke(line(spot, spot + point(0.1, -0.35)), 0.02)
            lines = [box(-0.11, y, w, y + 0.03) + spot for y, w in ((-0.04, 0.1), (0.03, 0.04))]
            tag = box(-0.16, -0.1, 0.16, 0.12) + spot
            return [(string, STRING), (tag, PAPER), *((line, STRING) for line in lines)]
        case 2:
            skin = rng.uniform(0.45, 1.05) * SKIN
            hand = []
            for i in (-1, 0, 1):
                tip = spot + 0.17 * i * aside + 0.08 * abs(i) * away
                finger = line(tip, tip + 2 * away)
                hand += [(stroke(finger, 0.18), 0.8 * skin), (ellipse(tip[0], tip[1], 0.09, 0.09), 0.8 * skin)]
                hand += [(stroke(finger, 0.15), skin), (ellipse(tip[0], tip[1], 0.075, 0.075), skin)]
                hand += [(ellipse(tip[0], tip[1], 0.045, 0.045), 0.85 * skin + 36)]
            return hand
        case _:
            ribbon = line(spot - 3 * aside, spot + 3 * aside)
            return [(stroke(ribbon, rng.uniform(0.08, 0.2)), color)]
