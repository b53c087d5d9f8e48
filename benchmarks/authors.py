"""Training in the style of the paper's released code, as the slow side of ``benchmarks/training.py``.

Everything as it is commonly written: float32, eager, the default memory format, worker processes that decode and
transform every view with torchvision, a similarity with a loop over rows, timm's AdamP, a teacher updated tensor by
tensor, the loss read back after each step, and an epoch that begins with all distances of all images.
"""

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from loss import reference
from PIL import Image
from timm.optim.adamp import AdamP
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from selftaught.networks import Backbone, Preprocessing, build_backbone, linear_head

MOMENTUM = 0.999


@dataclass(frozen=True)
class Epoch:
    """Seconds of one epoch; those of a part of it are extrapolated."""

    steps: float
    neighbors: float
    part: float
    """How much of the epoch was run."""


class Student(nn.Module):
    """Backbone, average plus maximum over its feature map, heads."""

    def __init__(self, backbone: nn.Module, features: int, dim: int, freeze_batch_norm: bool) -> None:
        super().__init__()
        self.backbone, self.f, self.g = backbone, linear_head(features, dim), linear_head(features, features)
        self.freeze_batch_norm = freeze_batch_norm

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.backbone(images)
        x = x.mean((2, 3)) + x.amax((2, 3))
        return self.f(x), self.g(x)

    def train(self, mode: bool = True) -> "Student":
        super().train(mode)
        if self.freeze_batch_norm:
            for layer in self.backbone.modules():
                if isinstance(layer, _BatchNorm):
                    layer.eval().requires_grad_(False)
        return self


class Normalized:
    """A PIL image as the input of a backbone."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self.preprocessing = preprocessing
        self.tensor, self.normal = transforms.ToTensor(), transforms.Normalize(preprocessing.mean, preprocessing.std)

    def __call__(self, image: Image.Image) -> Tensor:
        x = self.tensor(image)
        x = x[[2, 1, 0]] if self.preprocessing.channels == "BGR" else x
        result: Tensor = self.normal(x * self.preprocessing.value_range)
        return result


class Photos(Dataset[tuple[Any, int]]):
    """Image files through a transform, in one or more views."""

    def __init__(self, paths: Sequence[str], transform: transforms.Compose, views: int) -> None:
        self.paths, self.transform, self.views = paths, transform, views

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = Image.open(self.paths[index]).convert("RGB")
        return [self.transform(image) for _ in range(self.views)], index


class Authors:
    """A loop that can run (a part of) an epoch."""

    def __init__(
        self, name: str, paths: Sequence[str], settings: dict[str, Any], workers: int, device: torch.device
    ) -> None:
        backbone: Backbone = build_backbone(name, "none")
        inputs = backbone.preprocessing
        with torch.no_grad():
            features = backbone.module.eval()(torch.zeros(1, 3, inputs.size, inputs.size)).shape[1]
        self.batch, self.neighbors = settings["batch_size"], settings["neighbors"]
        self.paths, self.workers, self.device = list(paths), workers, device
        self.student = Student(backbone.module, features, settings["dim"], settings["freeze_batch_norm"])
        self.student.to(device).train()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval()
        heads = [*self.student.f.parameters(), *self.student.g.parameters()]
        groups = [{"params": [p for p in self.student.backbone.parameters() if p.requires_grad]}, {"params": heads}]
        self.optimizer = AdamP(groups, lr=1e-4, weight_decay=1e-2, nesterov=True)
        crop = transforms.RandomResizedCrop(inputs.size, scale=settings["crop_scale"])
        finish = Normalized(inputs)
        self.views = transforms.Compose([crop, transforms.RandomHorizontalFlip(), finish])
        self.whole = transforms.Compose([transforms.Resize((inputs.squash, inputs.squash)), finish])
        self.size, self.pinned = inputs.size, device.type == "cuda"

    def epoch(self, steps: int) -> Epoch:
        """Run at most so many steps, after embedding as large a part of the images."""
        whole = len(self.paths) // self.batch
        steps = min(steps, whole)
        self._step(torch.randn(2 * self.batch, 3, self.size, self.size, device=self.device), self._ids(self.batch))
        self._wait()
        began = time.perf_counter()
        batches = self._batches(self.paths[: len(self.paths) * steps // whole])
        embedded = time.perf_counter()
        loader: DataLoader[Any] = DataLoader(
            Photos(self.paths, self.views, 2),
            batch_sampler=batches[:steps],
            num_workers=self.workers,
            pin_memory=self.pinned,
        )
        done = 0
        for (first, second), index in loader:
            images = torch.cat([first, second]).to(self.device, non_blocking=True)
            self._step(images, torch.cat([index, index]).to(self.device))
            done += 1
        self._wait()
        ended = time.perf_counter()
        return Epoch((ended - embedded) * whole / done, (embedded - began) * whole / done, done / whole)

    @torch.no_grad()
    def _batches(self, paths: list[str]) -> list[list[int]]:
        """Nearest-neighbor batches, from the matrix of all distances."""
        self.student.eval()
        loader: DataLoader[Any] = DataLoader(
            Photos(paths, self.whole, 1), self.batch, num_workers=self.workers, pin_memory=self.pinned
        )
        embeddings = torch.cat([self.student(images.to(self.device))[1] for (images,), _ in loader])
        nearest = torch.cdist(embeddings, embeddings).topk(self.neighbors, largest=False).indices.cpu()
        self.student.train()
        queries = torch.randperm(len(paths))[: len(paths) // self.batch * self.batch // self.neighbors]
        rows: list[list[int]] = nearest[queries].reshape(-1, self.batch).tolist()
        return rows

    def _step(self, images: Tensor, ids: Tensor) -> float:
        with torch.no_grad():
            teacher = self.teacher(images)[1]
        f, g = self.student(images)
        loss = reference(f, g, teacher, ids)
        self.optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for old, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                old.mul_(MOMENTUM).add_(new, alpha=1 - MOMENTUM)
            for target, source in zip(self.teacher.buffers(), self.student.buffers(), strict=True):
                target.copy_(source)
        self.optimizer.step()
        return loss.item()

    def _ids(self, images: int) -> Tensor:
        return torch.arange(images, device=self.device).repeat(2)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
