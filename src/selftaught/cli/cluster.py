"""selftaught cluster: groups of photos, without a given number of groups, and their names for new photos."""

from pathlib import Path

from selftaught.cli.model_use import UNASKED, embed_folder, load_model, refuse_among, wants_whitening
from selftaught.cli.options import ModelUse
from selftaught.console import Reporter
from selftaught.data import open_images
from selftaught.errors import UsageError, printable
from selftaught.files import fill_folder, to_csv, write_atomically
from selftaught.named_groups import find_new_groups, make_links, read_groups, sort_photos, write_groups_page

PHOTOS, GROUPS, PAGE, LINKS = "images.csv", "groups.csv", "groups.html", "links"


def cluster(
    use: ModelUse, source: str, out: Path, smallest: int, names: Path | None, links: bool, allow_skipped: bool
) -> None:
    known = None if names is None else read_groups(names)
    if known is not None and use.whiten:
        raise UsageError("--whiten decides how groups are found; with --names they are known already")
    images = open_images(source, "all", allow_skipped=allow_skipped)
    refuse_among(images, out)
    if links and images.members is not None:
        raise UsageError(f"{printable(source)} lies in tar files: links cannot lead into them")
    embedder = load_model(use)
    if known is not None and (known.model, known.centers.means.shape[1]) != (embedder.identity, embedder.dim):
        raise UsageError(
            f"{printable(names)} was made with another model than {printable(use.run)}, or with another "
            "--size, --mirror or --scales: give those"
        )
    with fill_folder(out) as place:
        images, vectors, _ = embed_folder(embedder, images, allow_skipped)
        if known is None:
            whitened = wants_whitening(embedder, use.whiten, images)
            if whitened and use.whiten is None:
                Reporter().say(UNASKED)
            Reporter().say("finding groups")
            found = find_new_groups(images, vectors, smallest, whitened, embedder.identity)
        else:
            found = sort_photos(images, vectors, known)
        write_atomically(place / PHOTOS, to_csv(found.rows()))
        write_atomically(place / GROUPS, to_csv(found.known.rows()))
        write_groups_page(place / PAGE, found)
        if links:
            make_links(place / LINKS, found)
    print(found.summarize())
    print(f"page:   {printable(out / PAGE)}\nphotos: {printable(out / PHOTOS)}\ngroups: {printable(out / GROUPS)}")
    if (out / LINKS).is_dir():  # not if no photo is in a group
        print(f"links:  {printable(out / LINKS)}")
