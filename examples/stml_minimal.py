"""Self-taught metric learning in plain PyTorch, to read in half an hour: Algorithm 1 of the paper, step by step.

    python examples/stml_minimal.py PHOTOS

The pieces come from ``selftaught.method``, which has one file for each step of the paper. ``selftaught train`` takes
the same steps; it adds reading images fast, checkpoints, several processes and signals that need no labels.
"""

import copy
import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2

from selftaught import STMLLoss
from selftaught.data import find_images
from selftaught.method import MovingAverage, neighbor_batches
from selftaught.networks import EmbeddingNetwork, Encoder, build_backbone, linear_head, parameter_groups
from selftaught.training import AdamP

Whole = Callable[[int], Tensor]
"""The number of an image → all of it, squashed to a square: uint8, 3×H×W."""
Views = Callable[[int, int, Tensor], Tensor]
"""Epoch, step, and the numbers of n images → two random views of each: uint8, 2n×3×H×W, all first views first."""


def make_networks(encoder: Encoder, dim: int) -> tuple[EmbeddingNetwork, EmbeddingNetwork]:
    """The student, with heads f (the embedding) and g, and the teacher, with a g of its own."""
    features = encoder.features
    heads = {"f": linear_head(features, dim), "g": linear_head(features, features)}
    student = EmbeddingNetwork(encoder, heads)
    teacher = EmbeddingNetwork(copy.deepcopy(encoder), {"g": linear_head(features, features)})
    return student, teacher.requires_grad_(False)


def train(
    student: EmbeddingNetwork,
    teacher: EmbeddingNetwork,
    images: int,
    whole: Whole,
    views: Views,
    epochs: int,
    batch_size: int = 120,
    neighbors: int = 5,
    sigma: float = 3.0,
    delta: float = 1.0,
    momentum: float = 0.999,
    lr: float = 1e-4,
    weight_decay: float = 1e-2,
    seed_of: Callable[[int], int] = int,
) -> list[float]:
    """Train the student in place, with the settings of the authors' code; returns the loss of every step."""
    criterion = STMLLoss(k=2 * neighbors, sigma=sigma, delta=delta)
    average = MovingAverage(teacher, student, momentum)
    optimizer = AdamP(parameter_groups(student, lr, lr), weight_decay=weight_decay, nesterov=True)
    losses: list[float] = []
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
        # Step 1: batches of queries, each with its nearest neighbors in the student's space g.
        generator = torch.Generator().manual_seed(seed_of(epoch))
        batches = neighbor_batches(embed(student, images, whole), batch_size, neighbors, generator)
        student.train()
        teacher.eval()
        for step, ids in enumerate(batches):
            rows = views(epoch, step, ids)
            with torch.no_grad():
                taught = teacher(rows)["g"]
            learned = student(rows)
            # Step 2: the contextualized similarity of the teacher's embeddings is the soft label of each pair of rows.
            # Step 3: f and g learn these labels by the relaxed contrastive loss, and f also learns from g.
            loss = criterion(learned["f"], learned["g"], taught, ids.repeat(2)).total
            loss.backward()
            # Step 4: the teacher follows the student; in the authors' code before the optimizer's step.
            average.update()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
    return losses


@torch.no_grad()
def embed(student: EmbeddingNetwork, images: int, whole: Whole, at_once: int = 64) -> Tensor:
    """The student's embedding g of all images, n×d."""
    student.eval()
    parts = torch.arange(images).split(at_once)
    return torch.cat([student(torch.stack([whole(i) for i in part.tolist()]))["g"] for part in parts])


def main(photos: str, epochs: int = 10, dim: int = 128) -> None:
    folder, backbone = find_images(photos), build_backbone("auto")
    inputs = backbone.preprocessing
    squash = v2.Resize((inputs.squash, inputs.squash))
    crop = v2.Compose([v2.RandomResizedCrop(inputs.size, (0.16, 1.0)), v2.RandomHorizontalFlip()])

    def read(i: int) -> Tensor:
        pixels: Tensor = decode_image(folder.path(i), ImageReadMode.RGB)
        return pixels

    def two_views(_epoch: int, _step: int, ids: Tensor) -> Tensor:
        pictures = [read(i) for i in ids.tolist()]
        return torch.stack([crop(picture) for _ in range(2) for picture in pictures])

    torch.manual_seed(0)
    encoder = Encoder(backbone.module, inputs, freeze_batch_norm=backbone.pretrained)
    student, teacher = make_networks(encoder, dim)
    batch_size = min(120, len(folder) // 5 * 5)
    losses = train(student, teacher, len(folder), lambda i: squash(read(i)), two_views, epochs, batch_size)
    print(f"loss of the first step {losses[0]:.4f}, of the last {losses[-1]:.4f}")
    torch.save({"encoder": student.encoder.state_dict(), "f": student.heads["f"].state_dict()}, "stml_minimal.pt")


if __name__ == "__main__":
    main(sys.argv[1])
