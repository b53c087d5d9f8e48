"""Group photos without a given number of groups; name the groups; carry the names over to new photos."""

import re
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from selftaught.cli.model_use import embed_folder, load_model
from selftaught.cli.options import ModelUse
from selftaught.console import Reporter
from selftaught.data import ImageFolder, open_images
from selftaught.errors import SelftaughtError, UsageError, counted, printable
from selftaught.files import fill_folder, plain_path, to_csv, write_atomically
from selftaught.named_groups import NamedGroups, read_groups
from selftaught.networks import fit_whitening
from selftaught.report import PhotoGroup, Section, photo_groups, photo_of, write_gallery
from selftaught.retrieval import find_centers, find_groups

PHOTOS, GROUPS, PAGE, LINKS = "images.csv", "groups.csv", "groups.html", "links"
SHOWN_GROUPS, SHOWN_PHOTOS = 300, 12
WHITENED = 256
"""The number of dimensions of whitened vectors."""
LINK_NAME = 60
"""The most characters from a name in that of a link or of its folder: in Unicode, each may take 4 of 255 bytes."""


def cluster(
    use: ModelUse, source: str, out: Path, smallest: int, names: Path | None, links: bool, allow_skipped: bool
) -> None:
    known = None if names is None else read_groups(names)
    if known is not None and use.whiten:
        raise UsageError("--whiten decides how groups are found; with --names they are known already")
    images = open_images(source, "all", allow_skipped=allow_skipped)
    if links and images.members is not None:
        raise UsageError(f"{printable(source)} lies in tar files: links cannot lead into them")
    embedder = load_model(use)
    if known is not None and known.model != embedder.identity:
        raise UsageError(
            f"{printable(names)} was made with another model than {printable(use.run)}, or with another "
            "--size, --mirror or --scales: give those"
        )
    with fill_folder(out) as place:
        images, vectors, _ = embed_folder(embedder, images, allow_skipped)
        if known is None:
            Reporter().say("finding groups")
            groups = find_groups(_whitened(vectors) if use.whiten else vectors, smallest)
            centers = find_centers(vectors, groups)
            sizes = torch.bincount(groups[groups >= 0], minlength=len(centers.means)).tolist()
            known = NamedGroups(("",) * len(sizes), tuple(sizes), centers, embedder.identity)
            distances = torch.full((len(groups),), torch.inf)
            inside = groups >= 0
            distances[inside] = torch.linalg.vector_norm(vectors[inside] - centers.means[groups[inside]], dim=1)
        else:
            groups, distances = known.centers.assign(vectors)
        write_atomically(place / PHOTOS, to_csv(_images_table(images, known, groups, distances)))
        write_atomically(place / GROUPS, to_csv(known.rows()))
        write_groups_page(place / PAGE, images, known, groups, distances)
        if links:
            make_links(place / LINKS, images, known, groups)
    print(summarize(groups))
    print(f"page:   {printable(out / PAGE)}\nphotos: {printable(out / PHOTOS)}\ngroups: {printable(out / GROUPS)}")
    if links:
        print(f"links:  {printable(out / LINKS)}")


def summarize(groups: Tensor) -> str:
    inside, used = int((groups >= 0).sum()), len(set(groups[groups >= 0].tolist()))
    return f"{inside} of {len(groups)} photos are in {counted(used, 'group')}, {len(groups) - inside} in none."


def write_groups_page(path: Path, images: ImageFolder, known: NamedGroups, groups: Tensor, distances: Tensor) -> None:
    """Write the page of groups, with fields for their names; the photos nearest to a center come first."""
    shown = []
    for number in range(min(SHOWN_GROUPS, len(known.names))):
        rows = (groups == number).nonzero()[:, 0]
        rows = rows[distances[rows].argsort()]
        if not len(rows):
            continue
        nearest = rows[:SHOWN_PHOTOS].tolist()
        photos = [photo_of(images, row, f"{distances[row]:.3f} from the center") for row in nearest]
        heading = f"Group {number + 1} · {len(rows)} photos"
        shown.append(PhotoGroup(heading, photos, len(rows) - len(photos), number + 1, known.names[number]))
    more = len(known.names) - SHOWN_GROUPS
    note = f"The first {SHOWN_GROUPS} are shown; {more} more are in images.csv." if more > 0 else ""
    how = "Give groups a name (two may have the same), then save groups.csv. With --names groups.csv, selftaught "
    how += "cluster finds the same groups in other photos."
    if not shown:
        none = "There are none. A smaller --smallest finds smaller ones, and --whiten finer ones."
        how = "None of them is among these photos." if known.names else none
    sections = [Section("Groups", f"{how} {note}", html=photo_groups(shown))]
    rest = (groups < 0).nonzero()[:, 0]
    if len(rest):
        some = rest[torch.linspace(0, len(rest) - 1, min(SHOWN_PHOTOS, len(rest))).long()].tolist()
        group = PhotoGroup(counted(len(rest), "photo"), [photo_of(images, row) for row in some])
        text = "They look like too few others, or are too far from every group. Some of them:"
        sections.append(Section("In no group", text, html=photo_groups([group])))
    write_gallery(
        path, f"Groups in {printable(images.root)}", summarize(groups), sections, known.rows() if shown else None
    )


def make_links(place: Path, images: ImageFolder, known: NamedGroups, groups: Tensor) -> None:
    """Make a folder of links for each group; groups with the same name share one."""
    for index, group in enumerate(groups.tolist()):
        if group < 0:
            continue
        folder = place / re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", known.title(group))[:LINK_NAME].strip(". ")
        flat = images.files[index].replace("/", "__")
        link = folder / f"{index:06d}-{flat[-LINK_NAME:]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            link.symlink_to(plain_path(images.path(index)))
        except OSError as error:
            raise SelftaughtError(f"cannot make the link {printable(link)}: {error.strerror or error}") from None


def _images_table(images: ImageFolder, known: NamedGroups, groups: Tensor, distances: Tensor) -> list[list[str]]:
    rows = [["path", "group", "name", "distance"]]
    for file, group, distance in zip(images.files, groups.tolist(), distances.tolist(), strict=True):
        near = f"{distance:.4f}" if distance < torch.inf else ""
        rows.append([file, *([str(group + 1), known.names[group], near] if group >= 0 else ["", "", near])])
    return rows


def _whitened(vectors: Tensor) -> Tensor:
    try:
        weight, bias = fit_whitening(vectors, min(WHITENED, vectors.shape[1]))
    except ValueError as error:
        raise SelftaughtError(f"cannot whiten on these images: {error}") from None
    return normalize(vectors @ weight.T + bias, dim=1)
