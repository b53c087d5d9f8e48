"""The interface between the training loop and a method, and the common part of methods that learn from classes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from selftaught.data import View
from selftaught.learners.target import Target
from selftaught.method import class_batches, random_batches
from selftaught.networks import HEADS, EmbeddingNetwork, Encoder
from selftaught.parallel import gather_views, own_randomness
from selftaught.recipes import Settings

VIEWS = 2
"""Random views of each image in a batch."""


class Learner(nn.Module, ABC):
    """A method of learning embeddings: its networks, its batches, its losses. All its state is in ``state_dict``."""

    settings_class: type[Settings] = Settings
    """The class of its settings: those that all methods share, and its own."""

    labeled: bool = False
    """Whether it learns from labels."""

    network: EmbeddingNetwork
    """The network that is trained; its head "f" is the embedding of the finished model."""

    batch_head: str = "f"
    """The head whose embeddings of all training images :meth:`batches` is given."""

    more_views: tuple[View, ...] = ()
    """Views of all training images that :meth:`batches` uses besides the whole, squashed one."""

    loss_names: tuple[str, ...] = ("loss",)
    """The names of what :meth:`loss` returns; the first is the one to minimize."""

    groups_images: bool = False
    """Whether it pulls different images onto one point on purpose, so that an image's views need not stay nearest."""

    head: str = "linear"
    """The kind of the head "f", a name in :data:`selftaught.networks.HEADS`."""

    def __init__(self, encoder: Encoder, settings: Settings, images: Any) -> None:  # noqa: ARG002
        """``images``: the number of images, or their classes if the method is labeled."""
        super().__init__()
        assert settings.batch_size is not None
        self.batch_size = settings.batch_size

    def make_network(self, encoder: Encoder, settings: Settings, **others: nn.Module) -> EmbeddingNetwork:
        """The encoder with the head "f" of this method's kind, and with other heads; embeddings have length 1."""
        f = HEADS[self.head](encoder.features, settings.dim)
        return EmbeddingNetwork(encoder, {"f": f, **others}, normalize=True)

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        """One epoch of batches from the embeddings of all images, :meth:`place`-d: steps×batch image indices.

        By default images are drawn at random, none of them twice.
        """
        return random_batches(len(embeddings), self.batch_size, generator)

    def place(self, embeddings: Tensor) -> Tensor:
        """Where images lie for :meth:`batches`; the places of several views are added up."""
        return embeddings

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        """The embeddings that :meth:`loss` needs, from uint8 rows n×3×H×W, all first views, then all second ones.

        The rows are those of this process. The result has a row for each of them, or for one view of each image; by
        default it holds the outputs of the network's heads.
        """
        embeddings: dict[str, Tensor] = self.network(images)
        return embeddings

    @abstractmethod
    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        """The losses of one batch, from the embeddings of all processes and the image that each row shows.

        Every process gets the same embeddings, so that the memory of a method stays the same in all processes.
        """

    def forward(self, images: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """The losses of one batch of images in :data:`VIEWS` views each.

        Args:
            images: uint8 rows n×3×H×W of this process's part of the images, all first views, then all second ones.
            ids: the image that each row of the whole batch shows, including the rows of other processes.
        """
        with own_randomness(images.device):
            embeddings = self.embed(images)
        return self.loss(self.gather(embeddings, len(ids) // VIEWS), ids)

    def gather(self, embeddings: dict[str, Tensor], images: int) -> dict[str, Tensor]:
        """The embeddings of all processes, for ``images`` images in total."""
        return {name: gather_views(rows, images) for name, rows in embeddings.items()}

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:  # noqa: ARG002
        """Groups of parameters that learn besides those of the network, each with its "lr": a predictor, proxies."""
        return []

    def start_from(self, network: Mapping[str, Tensor]) -> None:
        """Copy the state of another learner's network; heads that this one does not have are left out."""
        own = self.network.state_dict()
        self.network.load_state_dict({name: tensor for name, tensor in network.items() if name in own})
        for module in self.children():
            if isinstance(module, Target):
                module.network.load_state_dict(self.network.state_dict())

    def after_backward(self) -> None:
        """Called between backward and the optimizer's step."""

    def after_step(self) -> None:
        """Called after the optimizer's step."""


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
