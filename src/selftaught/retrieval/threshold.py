"""How near two photos must be to count as copies, proposed from the distances of a collection and of known copies."""

import math
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from selftaught.retrieval.groups import Neighbors, Pairs, connect, members

BY_CHANCE = 0.1
"""The largest expected share of chance among the photos with a neighbor under the threshold."""
LONE = 0.1
"""The count that a single pair stands for: one photo in a hundred such collections may be that near by chance."""
QUANTILES = 0.1, 0.5
"""The two quantiles that describe the distances of different photos: only the lower half matters."""
APART = 0.9, 0.7, 0.5
"""Groups under each of these quantiles of the known copies are excluded in turn. The first may exclude some different
photos, the last may leave some copies; either makes copies look like chance, so the largest threshold counts."""
SHAPES = 1.0, 60.0
"""The range in which the shape of the distribution is searched."""
FURTHEST = 0.9
"""The largest share of known copies under a threshold; beyond it, collections hold different photos of one thing."""
CROWDED = 0.1
"""If more than this share of photos have a neighbor as near as a copy, copies cannot be told from others."""
FEWEST = 16
"""The fewest different photos that are needed to tell their distances from those of copies."""
SAMPLES, SHARE = 21, 0.9
"""The threshold is the median over this many samples, each of this share of the photos: if copies and different photos
overlap, a few photos can change the threshold of one sample a lot."""


@dataclass(frozen=True)
class Proposal:
    """A threshold, or None if nothing looks like a copy; and the reason."""

    threshold: float | None
    reason: str


def propose_threshold(near: Neighbors, known: Tensor) -> Proposal:
    """The largest distance at which neighbors are copies rather than different photos.

    The distance of a photo to its nearest neighbor approximately follows a Weibull distribution, like the smallest of
    many distances. It is fitted to one photo of each group of photos as near as known copies, so that copies do not
    bias it. It says how many photos have a neighbor under a threshold by chance. The threshold is the largest one at
    which these are at most a tenth of the photos that have one, as a median over samples of the photos.

    Args:
        near: the neighbors of all n photos, with exact copies left out.
        known: distances between photos and copies of them that were made on purpose.
    """
    n, middle, cap = len(near.indices), known.median().item(), known.quantile(FURTHEST).item()
    first = near.distances[:, :1].flatten()
    if n < FEWEST:
        few = f"fewer than {FEWEST} photos are too few to say more"
        return Proposal(middle, f"half of the copies made for this test are nearer; {few}")
    generator = torch.Generator().manual_seed(0)
    samples = [torch.randperm(n, generator=generator)[: round(SHARE * n)].sort().values for _ in range(SAMPLES)]
    threshold = median(_propose(near.among(rows), known, cap) for rows in samples)
    if not threshold:
        near_ones = (first <= middle).double().mean().item()
        if near_ones < CROWDED:
            text = f"the nearest two are {first.min():.3g} apart, as different photos are by chance"
            return Proposal(None, f"{text}; if pairs on the page are copies, give a --threshold above their distances")
        text = f"{near_ones:.0%} of the photos have a neighbor as near as copies are, within {middle:.3g}"
        return Proposal(None, f"{text}, and copies cannot be told from others: look at the page and give --threshold")
    share = (known <= threshold).double().mean().item()
    near_copies = f"{share:.0%} of the copies made for this test are nearer"
    if threshold >= cap:
        return Proposal(threshold, f"{near_copies}, and hardly any different photos are")
    return Proposal(threshold, f"{near_copies}; with more, over {BY_CHANCE:.0%} of what is found would not be copies")


def _propose(near: Neighbors, known: Tensor, cap: float) -> float:
    """The threshold from one sample of the photos; 0 if there is none."""
    pairs, first = near.mutual_pairs(), near.distances[:, :1].flatten()
    threshold = 0.0
    for apart in known.quantile(torch.tensor(APART)).tolist():
        different = _to_other_groups(near, pairs.under(apart))
        if len(different) >= max(FEWEST, len(first) // 2):
            threshold = max(threshold, _largest(first, different, apart, cap))
    return threshold


def _to_other_groups(near: Neighbors, pairs: Pairs) -> Tensor:
    """For one photo of each group that pairs connect, the distance to the nearest photo outside of it."""
    groups = connect(len(near.indices), pairs)
    others = groups[near.indices] != groups[:, None]
    distance = torch.where(others, near.distances, math.inf).min(1).values
    distance = distance[torch.stack([rows[0] for rows in members(groups, smallest=1)])]
    return distance[distance.isfinite()]


def _largest(first: Tensor, different: Tensor, apart: float, cap: float) -> float:
    """The largest threshold, at most ``cap``, with few enough photos by chance under it; 0 if there is none."""
    rate, shape = _fit(different / apart)
    found = first.sort().values
    counts = torch.arange(1.0, len(found) + 1)
    counts = (counts - 1.5 * counts.sqrt()).clamp(min=LONE)  # a lower bound: a few may be there by chance
    # Where the expected number by chance, n (1 - exp(-rate (t / apart)^shape)), is the allowed share of the count.
    allowed = apart * (-torch.log1p(-BY_CHANCE * counts / len(found)) / rate).pow(1 / shape)
    good = (found <= allowed.clamp(max=cap)).nonzero()[:, 0]
    if not len(good):
        return 0.0
    last = int(good[-1])
    after = found[last + 1].item() if last + 1 < len(found) else math.inf
    return min(cap, allowed[last].item(), after)


def _fit(ratios: Tensor) -> tuple[float, float]:
    """Rate and shape of a Weibull distribution, exp(-rate x^shape) beyond x, from values over 1 only."""
    low, high = (max(ratios.quantile(q).item(), 1 + 1e-6) for q in QUANTILES)
    wanted = [-math.log1p(-q) for q in QUANTILES]
    least, most = SHAPES
    for _ in range(50):
        shape = (least + most) / 2
        # In steeper distributions the lower quantile is smaller, relative to the upper one.
        steeper = (low**shape - 1) * wanted[1] > (high**shape - 1) * wanted[0]
        least, most = (shape, most) if steeper else (least, shape)
    return wanted[0] / (low**shape - 1), shape
