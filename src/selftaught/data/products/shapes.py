"""Outlines of simple shapes: points×2, x to the right, y down."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def rgb(codes: str) -> Array:
    return np.array([list(bytes.fromhex(code)) for code in codes.split()], np.float32)


def polygon(*points: tuple[float, float]) -> Array:
    return np.array(points, np.float32)


def point(x: float, y: float) -> Array:
    return np.array([x, y], np.float32)


def line(start: Array, end: Array) -> Array:
    return np.linspace(start, end, 5, dtype=np.float32)


def box(x0: float, y0: float, x1: float, y1: float) -> Array:
    return polygon((x0, y0), (x1, y0), (x1, y1), (x0, y1))


def ellipse(x: float, y: float, rx: float, ry: float, start: float = 0, end: float = 2 * math.pi) -> Array:
    t = np.linspace(start, end, 40)
    return np.stack([x + rx * np.cos(t), y + ry * np.sin(t)], 1).astype(np.float32)


def revolved(*stations: tuple[float, float]) -> Array:
    """The outline of a body of revolution through (height, radius), smoothed between."""
    height, radius = (
        np.interp(np.linspace(0, 1, 60), np.linspace(0, 1, len(z)), z) for z in zip(*stations, strict=True)
    )
    radius = np.convolve(np.pad(radius, 3, mode="edge"), np.ones(7) / 7, "valid")
    right = np.stack([radius, height], 1)
    return np.concatenate([right, right[::-1] * [-1, 1]]).astype(np.float32)


def stroke(line: Array, width: float) -> Array:
    """A line as a band of that width."""
    along = np.gradient(line, axis=0)
    across = along[:, ::-1] * [1, -1] / np.linalg.norm(along, axis=1, keepdims=True) * width / 2
    return np.concatenate([line + across, (line - across)[::-1]]).astype(np.float32)


def rotation(angle: float) -> Array:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], np.float32)
