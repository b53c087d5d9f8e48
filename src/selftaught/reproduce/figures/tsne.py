"""The embedding space before and after training, as a t-SNE map of the images themselves."""

from collections.abc import Sequence

import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional as F

from selftaught.report import LINE_COLORS, above, beside, draw_image_map, fit_image, font, text_line
from selftaught.reproduce.figures.drawing import Drawing
from selftaught.reproduce.figures.labeled_images import LabeledImages, pick_middles
from selftaught.reproduce.figures.observe import EpochResult

LIMIT = 1500
"""The most images on the map."""
FEWEST_CLASSES = 12
CELL = 40
"""Side of an image on the map, in pixels."""
MARKED = 5
"""The number of classes that are framed."""
PERPLEXITY = 30.0


def draw_tsne(labeled: LabeledImages, seen: Sequence[EpochResult]) -> Drawing:
    """Draw two maps side by side; a few classes, evenly spaced, are framed in their color."""
    picked = labeled.sample(LIMIT, FEWEST_CLASSES)
    labels = [labeled.labels[i] for i in picked]
    names = sorted(set(labels))
    marked = {names[i]: color for i, color in zip(pick_middles(MARKED, len(names)), LINE_COLORS, strict=False)}
    thumbnails = [fit_image(labeled.paths[i], CELL) for i in picked]
    colors = [marked.get(label) for label in labels]
    cells = max(12, round(1.4 * len(picked) ** 0.5))
    maps, points = [], []
    for result in (seen[0], seen[-1]):
        assert result.vectors is not None
        points.append(tsne(result.vectors[picked]))
        drawing, drawn = draw_image_map(thumbnails, points[-1], colors, cells=cells, cell=CELL)
        title = f"{result.title}: {drawn:,} of {len(picked):,} images drawn, of {len(names)} classes"
        line = text_line(title, font(max(12, CELL // 2), bold=True), drawing.width)
        maps.append(above([line, Image.new("RGB", (drawing.width, CELL // 2), "white"), drawing]))
    whole = beside(maps, gap=2 * CELL)
    picture = ImageOps.expand(above([whole, _legend(marked, whole.width)]), CELL, "white")
    numbers = zip(picked, labels, *(p.tolist() for p in points), strict=True)
    rows = ([labeled.images.files[i], label, *before, *after] for i, label, before, after in numbers)
    return Drawing(picture, ["path", "label", "x_before", "y_before", "x_after", "y_after"], rows)


def tsne(vectors: Tensor) -> Tensor:
    """Barnes-Hut t-SNE, n×d → n×2, from a start by principal components; equal vectors give equal maps."""
    from sklearn.manifold import TSNE

    if vectors.shape[1] < 2:
        vectors = F.pad(vectors, (0, 1))  # the start needs two components
    perplexity = min(PERPLEXITY, max(1.0, (len(vectors) - 1) / 3))
    engine = TSNE(perplexity=perplexity, init="pca", random_state=0)
    return torch.from_numpy(engine.fit_transform(vectors.float().numpy()))


def _legend(marked: dict[str, str], width: int) -> Image.Image:
    """A square of each color, with the class it stands for."""
    room = width // len(marked)
    face = font(max(11, CELL * 2 // 5))
    entries = []
    for name, color in marked.items():
        entry = Image.new("RGB", (room, CELL * 3 // 2), "white")
        text = text_line(name, face, room - CELL * 3 // 2)
        entry.paste(Image.new("RGB", (CELL // 2, CELL // 2), color), (0, CELL))
        entry.paste(text, (CELL * 3 // 4, CELL * 5 // 4 - text.height // 2))
        entries.append(entry)
    return beside(entries)
