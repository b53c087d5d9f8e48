"""Small learners of any method, and a batch for them."""

from typing import Any

import torch
from torch import Tensor

from selftaught.learners import Learner, build_learner, has_setting, make_settings
from selftaught.networks import Encoder, Preprocessing
from selftaught.networks.small import SmallNetwork

IMAGES, BATCH = 12, 4


def small_learner(method: str, *, freeze_batch_norm: bool = False, **changes: Any) -> Any:
    """A learner for twelve images; of type Any, so that a test may look at what only one method has."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"dim": 6, "batch_size": BATCH, "neighbors": 2, "momentum": 0.5, "queue": 10} | changes
    options = {name: value for name, value in options.items() if name in changes or has_setting(method, name)}
    encoder = Encoder(SmallNetwork(), Preprocessing(size=32), freeze_batch_norm)
    return build_learner(encoder, make_settings(method=method, **options), IMAGES).train()


def batch(seed: int = 1, first_id: int = 0) -> tuple[Tensor, Tensor]:
    """Two views of four images."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (2 * BATCH, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return images, torch.arange(first_id, first_id + BATCH).repeat(2)


def step(learner: Learner, seed: int = 1, first_id: int = 0, lr: float = 0.1) -> Tensor:
    """One step as the training loop does it; returns the loss."""
    parameters = [p for p in learner.network.parameters() if p.requires_grad]
    extra = [p for group in learner.extra_groups(lr) for p in group["params"]]
    optimizer = torch.optim.SGD(parameters + extra, lr=lr)
    loss: Tensor = learner(*batch(seed, first_id))["loss"]
    loss.backward()
    learner.after_backward()
    optimizer.step()
    optimizer.zero_grad()
    learner.after_step()
    return loss.detach()
