"""Whitening: a linear layer that makes features vary equally in all directions."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.retrieval import (
    LEAST_STEP,
    Neighbors,
    estimate_photos_per_thing,
    find_neighbors,
    nearest,
    shared_neighbors,
)

LEAST_VARIANCE = 1e-4
"""Directions with less than this share of the largest variance are noise, which whitening would amplify."""
ROUNDING = 1e-10
"""Directions with less than this share of the largest second moment are rounding errors."""
HALF, MILD = 0.5, 0.2
"""The exponents for images that form no large groups by themselves, and for those that do."""
LOOSE, GROUPED = 0.6, 0.9
"""The limits between the two: cars were below the first, birds from 0.75 to 1.2."""
FEW = 8
"""Up to so many photos of each thing, small differences tell things apart, whatever groups they form."""
NEIGHBORS, SAMPLE = 10, 2000
"""Among how many neighbors, and on how many images, that is measured."""
THINGS_DIM, THINGS_AMONG = 512, 20
"""In how many dimensions, and among how many neighbors, photos of one thing are looked for."""
WHITENED_ON = 20_000
"""The most images that whitening is fitted on, evenly spaced: more would not change it."""
WHITENED_FROM = 30
"""The fewest images that whitening helps with: on fewer, it adds more noise."""
ROWS = 4096
"""The number of rows that are converted to float64 at a time."""


def fit_whitening(features: Tensor, dim: int, alpha: float = HALF, centered: bool = True) -> tuple[Tensor, Tensor]:
    """A linear layer that maps features to their ``dim`` main directions and evens out the variance along them.

    Args:
        features: n×F, of the images to fit on.
        dim: at most F.
        alpha: how much of the differences in variance is removed: 0 only rotates, 1 whitens fully. At the default
            the standard deviation σ of a direction becomes √σ, up to a common factor.
        centered: move the features' mean to 0. Otherwise it stays where it is, and is one of the main directions.

    Returns:
        The weight dim×F and the bias dim, for ``weight @ x + bias``. Rows for directions in which the features hardly
        vary are 0. Give the result length 1 before comparing.

        If there are too few images to span ``dim`` directions, they say little about how features of other images
        vary. Then only half as many main directions as images are used. The rest are random directions at right angles
        to them, which keep distances about as they are.

    Example:
        >>> weight, bias = fit_whitening(torch.randn(100, 16), 8)
        >>> weight.shape, bias.shape
        (torch.Size([8, 16]), torch.Size([8]))
    """
    if features.ndim != 2 or len(features) < 2:
        raise ValueError(f"whitening is fitted on n×F features of at least 2 images, not on {tuple(features.shape)}")
    if not 1 <= dim <= features.shape[1]:
        raise ValueError(f"dim must be between 1 and the {features.shape[1]} features, but is {dim}")
    if not features.isfinite().all():
        raise ValueError("whitening cannot be fitted on features with infinite or undefined values")
    where = features.device if features.device.type == "cuda" else torch.device("cpu")  # mps has no float64
    blocks = features.detach().to(where).split(ROWS)
    mean = torch.stack([block.double().sum(0) for block in blocks]).sum(0) / len(features) * centered
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=where)
    for block in blocks:
        moved = block.double() - mean
        covariance.addmm_(moved.T, moved)
    variances, directions = torch.linalg.eigh(covariance / (len(features) - 1))
    main = dim if len(features) > dim else max(1, len(features) // 2)
    variances, directions = variances.flip(0)[:main], directions.flip(1)[:, :main]
    first = 0 if centered else min(1, main - 1)  # without centering, the mean is the main direction: no variance
    kept = (variances > ROUNDING * variances[0]) & (variances >= LEAST_VARIANCE * variances[first])
    if int(kept.sum()) <= first:
        raise ValueError("all features are equal, so there is nothing to whiten")
    # The sign of an eigenvector is arbitrary: its largest entry is made positive.
    directions = directions * directions.gather(0, directions.abs().argmax(0, keepdim=True)).sign()
    scale = torch.where(kept, variances / variances[kept].mean(), 1).pow(-alpha / 2) * kept
    weight = torch.cat([scale[:, None] * directions.T, _others(directions[:, kept], dim - main)])
    return weight.to(features), (-weight @ mean).to(features)


def _others(directions: Tensor, count: int) -> Tensor:
    """Random directions (rows) at right angles to the given columns, scaled to keep distances on average."""
    width, known = directions.shape
    draws = torch.randn(width, count, generator=torch.Generator().manual_seed(0), dtype=directions.dtype)
    draws = draws.to(directions.device)
    draws = draws - directions @ (directions.T @ draws)
    others: Tensor = torch.linalg.qr(draws).Q.T
    return others * math.sqrt((width - known) / max(1, count))


def count_photos_per_thing(*views: Tensor, least_step: float = LEAST_STEP) -> int | None:
    """About how many photos of one thing there are, up to 20; None if no number stands out.

    Args:
        views: an untrained network's features of the photos, n×F, once or from several views of each; the more, the
            surer. They are half-whitened, which shows things more clearly.
        least_step: see :func:`estimate_photos_per_thing`.
    """
    try:
        vectors = torch.cat([_half_whitened(features.detach().float()) for features in views], 1)
    except ValueError:  # too few, or all alike
        return None
    asked = torch.arange(0, len(vectors), -(-len(vectors) // SAMPLE), device=vectors.device)
    distances, indices = nearest(vectors[asked], vectors, min(THINGS_AMONG, len(vectors) - 1), exclude=asked)
    return estimate_photos_per_thing(Neighbors(distances.cpu(), indices.cpu()), least_step)


def _half_whitened(features: Tensor) -> Tensor:
    layer = whitened_layer(features[:: -(-len(features) // WHITENED_ON)], THINGS_DIM)
    return F.normalize(layer(features))


def choose_exponent(features: Tensor) -> float:
    """How much of the differences in variance whitening should remove: half, or less where images form large groups.

    Whitening makes small differences count more. That helps, unless the large ones already tell things apart, as an
    untrained network's do for things that it knows well (docs/best.md). Then two neighbors share many of their own
    neighbors, and the nearest image stands out among all; the product of the two is what decides. Where a few photos
    each of many things stand out, small differences are what tells them apart, whatever that product is; with more
    photos of each, that cost 6 points of MAP@R.

    Args:
        features: n×F of an untrained network.
    """
    vectors = F.normalize(features[:: -(-len(features) // SAMPLE)].detach().float())
    things = count_photos_per_thing(features)
    if len(vectors) < 3 or (things is not None and things <= FEW):
        return HALF
    near = find_neighbors(vectors, NEIGHBORS)
    others = (vectors @ vectors.T)[~torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)]
    nearest = 1 - near.distances[:, 0].square().mean() / 2  # the mean cosine
    stands_out = float((nearest - others.mean().cpu()) / others.std().cpu())
    grouped = (shared_neighbors(near) * stands_out - LOOSE) / (GROUPED - LOOSE)
    return HALF - (HALF - MILD) * min(1.0, max(0.0, grouped))


def whitened_layer(features: Tensor, dim: int, alpha: float = HALF, after: nn.Linear | None = None) -> nn.Linear:
    """The whitening by which models are read out, as a layer; optionally it includes the layer before it.

    Args:
        features: n×F to fit on: the outputs of ``after``, if it is given. Their mean stays where it is.
        dim: the number of outputs; fewer if there are fewer features.
        alpha: how much to whiten, see :func:`choose_exponent`.
        after: a layer to fold into the result, so that both take the time of one.
    """
    weight, bias = fit_whitening(features, min(dim, features.shape[1]), alpha, centered=False)
    if after is not None:
        first, shift = after.weight.detach().to(weight), after.bias.detach().to(weight)
        weight, bias = weight @ first, weight @ shift + bias
    layer = nn.Linear(weight.shape[1], len(weight), device=weight.device)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer.requires_grad_(False)
