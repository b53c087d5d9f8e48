"""The common part of methods that learn from classes."""

import torch
from torch import Tensor, nn

from selftaught.learners.learner import Learner
from selftaught.method import class_batches
from selftaught.networks import Encoder
from selftaught.recipes import Settings


class LabeledLearner(Learner):
    """A method that learns from the classes of images, in batches balanced over them."""

    labeled = True
    groups_images = True

    def __init__(self, encoder: Encoder, settings: Settings, classes: Tensor) -> None:
        super().__init__(encoder, settings, classes)
        self.per_class = settings.per_query
        self.classes = nn.Buffer(classes)

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        return class_batches(self.classes.cpu(), self.batch_size, self.per_class, generator)
