"""The page of a run, section by section."""

import shlex
from collections.abc import Iterable
from html import escape
from pathlib import Path

import torch
from PIL import Image, ImageOps

from selftaught.console import Reporter
from selftaught.data import open_image
from selftaught.duplicates import distances_of_known_copies, find_copies, find_same_bytes, show_groups
from selftaught.embedder import Embedder
from selftaught.errors import ImageError, counted, printable
from selftaught.files import plain_path
from selftaught.report import (
    EARLY,
    LATE,
    Photo,
    Section,
    comparison,
    draw_charts,
    draw_image_map,
    neighbor_map,
    photo_groups,
    photo_of,
    picture,
    principal_map,
    write_page,
)
from selftaught.retrieval import nearest
from selftaught.run_folder import REPORT
from selftaught.run_report.course import Course, describe_course, explain_scores, judge, read_course, scores_of
from selftaught.run_report.photos import AFTER, BEFORE, STRETCHES, Sample, embed_sample
from selftaught.training import RunImages

QUERIES, FOUND = 8, 6
"""The number of photos whose neighbors are shown, and the number of neighbors."""
CELL, LARGEST_CELL, MAP_WIDTH = 44, 88, 1060
"""Side of a photo on the map in pixels, at least and at most, and the width that the map has on a wide screen."""
FRAME = "#8c959f66"
"""The color around a photo on the map: a little of it, on a light page and on a dark one."""
SHOWN_GROUPS, SHOWN_COPIES = 8, 6
KNOWN_COPIES = 12
"""The number of photos that are copied to learn how near copies are: fewer than in selftaught dedup, to be quick."""


def write_run_report(
    run: Path,
    images: str | None = None,
    *,
    out: Path | None = None,
    before: Embedder | None = None,
    device: str = "auto",
    reporter: Reporter | None = None,
    listed: RunImages | None = None,
) -> Path:
    """Write the page of a finished run; returns its path.

    Args:
        images: the photos to show; by default the labeled ones if there are any, or else those trained on.
        out: the file to write; by default ``report.html`` in the run's folder.
        before: the model before training, if the run has kept none.
        listed: the images of the run, if that is known already.
    """
    reporter = reporter or Reporter()
    course = read_course(run, listed)
    sample = embed_sample(course, images, device, before, reporter)
    sections = [
        Section("What was trained on what", "", html=_list_pairs("facts", describe_course(course, sample.embedder))),
        Section("With and without training", explain_scores(course), table=scores_of(course)),
        _charts(course),
        _neighbors(sample),
        _map(sample, reporter),
        _copies(course, sample, reporter),
        Section("What to type next", "", html=_commands(course, images)),
    ]
    shown = [section for section in sections if section.text or section.table or section.html]
    title = f"What {printable(plain_path(run).name)} has learned"
    target = out or run / REPORT
    write_page(target, title, judge(course), shown)
    return target


def _charts(course: Course) -> Section:
    charts = draw_charts(course.start, course.history, course.queries)
    text = (
        "One point per epoch; the hollow one is before training. The band around a line is its noise, two standard "
        "deviations to either side: of losses and of the rank as they scatter from epoch to epoch, of scores also what "
        "so few labeled photos leave to chance. Changes within it mean nothing."
    )
    if course.models is not None and "recall@1" in course.start:
        text += " Scores are those of the network on its way; the finished model's are in the table above."
    drawn = "".join(picture(image, title) for title, image in charts)
    return Section("How training went", text, html=f'<div class="charts">{drawn}</div>' if charts else "")


def _neighbors(sample: Sample) -> Section:
    """Random photos and their neighbors, without training and after it."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randperm(len(sample), generator=generator)[:QUERIES]
    found = {}
    for name, z in sample.vectors.items():
        _, indices = nearest(z[queries], z, min(FOUND, len(sample) - 1), exclude=queries)
        found[name] = indices.tolist()
    blocks = []
    for place, query in enumerate(queries.tolist()):
        known = set(found[BEFORE][place]) if BEFORE in found else None
        rows = {
            name.capitalize(): [_mark(sample, i, query, known if name == AFTER else None) for i in rows[place]]
            for name, rows in found.items()
        }
        blocks.append(comparison(photo_of(sample.images, query), rows))
    text = f"{len(queries)} photos taken at random, not chosen, and the nearest to each among {_which(sample)}. "
    if sample.labels is not None:
        text += "✓ is a photo of the same class, ✗ one of another."
    elif BEFORE in found:
        text += "“New” was not among the nearest without training. Which row would you rather have?"
    heading = "Neighbors without and with training" if BEFORE in found else "Neighbors"
    return Section(heading, text, html="\n".join(blocks))


def _mark(sample: Sample, index: int, query: int, known: set[int] | None) -> Photo:
    """A neighbor of a query, marked as right or wrong by its label, or else as new if it was not known before."""
    mark = ""
    if sample.labels is not None:
        mark = "right" if sample.labels[index] == sample.labels[query] else "wrong"
    elif known is not None and index not in known:
        mark = "new"
    return photo_of(sample.images, index, mark)


def _map(sample: Sample, reporter: Reporter) -> Section:
    vectors = sample.vectors[sample.served]
    points, how = principal_map(vectors), "by t-SNE: near on the map is near for the model, far says little"
    try:
        with reporter.work("drawing the map", EARLY + LATE) as tell:
            steps = [0]

            def show(step: int, _places: object) -> bool:
                tell(step - steps[0])
                steps[0] = step
                return False

            points = neighbor_map(vectors, points, show)
    except ImportError:
        how = "by the two directions in which they differ most; pip install 'selftaught[explore]' draws a better map"
    cells = max(8, round(1.4 * len(sample) ** 0.5))
    cell = max(CELL, min(LARGEST_CELL, MAP_WIDTH // cells))
    thumbnails = [_square(path, cell) for path in sample.images.paths()]
    frames = [FRAME] * len(sample)
    drawing, drawn = draw_image_map(thumbnails, torch.from_numpy(points), frames, cells=cells, cell=cell)
    rest = len(sample) - drawn
    hidden = f" {counted(rest, 'does', 'do')} not fit between the others." if rest else ""
    text = f"{_which(sample).capitalize()}, placed {how}.{hidden} The map can be scrolled."
    inside = picture(drawing, "A map of the photos")
    return Section("A map", text, html=f'<div class="map" tabindex="0" role="region" aria-label="Map">{inside}</div>')


def _copies(course: Course, sample: Sample, reporter: Reporter) -> Section:
    """Equal files among all training photos, and near-duplicates among the photos of the page."""
    told = []
    if course.training is not None:
        same = find_same_bytes(course.training.paths())
        equal = sum(i != j for i, j in enumerate(same))
        files = f"{counted(equal, 'has', 'have')} the same bytes as another" if equal else "no file is there twice"
        told.append(f"Among the {len(same):,} photos trained on, {files}.")
    vectors = sample.vectors[sample.served]
    known = distances_of_known_copies(sample.embedder, sample.images, vectors, KNOWN_COPIES)
    with reporter.work("looking for copies", len(sample)) as tell:
        found = find_copies(sample.images, vectors, known, advance=tell)
    are = counted(found.extra, "is a copy", "are copies")
    some = f"{are} of another, the same or nearly" if found.extra else "none is a copy of another"
    where = f"{_which(sample)} in {printable(sample.images.root)}"
    told.append(f"Among {where}, {some}. selftaught dedup looks at all, and shows where it draws the line.")
    groups = photo_groups(show_groups(found, SHOWN_GROUPS, SHOWN_COPIES))
    return Section("Duplicates", " ".join(told), html=groups)


def _commands(course: Course, images: str | None) -> str:
    """Commands that use the model, with the paths of this run."""
    run = plain_path(course.run)
    photos = images or course.record.images or course.record.unlabeled or "PHOTOS"
    query = course.training.path(0) if course.training is not None and images is None else "QUERY.jpg"
    beside, before = run.with_name, ["--before"] if course.record.pretrained else []
    commands = {
        "Find photos like one of them": ["search", run, query, "--in", photos],
        "Make an index, to search often": ["index", run, photos, "--out", beside(f"{run.name}.index")],
        "Find duplicates": ["dedup", run, photos, "--out", beside(f"{run.name}.duplicates")],
        "Group the photos": ["cluster", run, photos, "--out", beside(f"{run.name}.groups")],
        "Look around on a map of all photos": ["explore", run, photos, *before, "--open"],
        "Measure it on class folders": ["evaluate", run, course.record.eval or "LABELED"],
        "Use it in other programs": ["export", run, "--onnx", run / "model.onnx"],
        "Make this page again, with other photos": ["report", run, "PHOTOS"],
    }
    pairs = [(what, shlex.join(["selftaught", *map(str, words)])) for what, words in commands.items()]
    return _list_pairs("commands", pairs, "<pre><code>{}</code></pre>")


def _list_pairs(kind: str, pairs: Iterable[tuple[str, str]], form: str = "{}") -> str:
    """Pairs of a name and a text as a list in HTML, each text in this form."""
    rows = [f"<dt>{escape(name)}</dt><dd>{form.format(escape(text))}</dd>" for name, text in pairs]
    return f'<dl class="{kind}">{"".join(rows)}</dl>'


def _which(sample: Sample) -> str:
    if len(sample) == sample.total:
        return f"all {len(sample):,} photos"
    return f"{len(sample):,} of {sample.total:,} photos (from {STRETCHES} places in the list of their names)"


def _square(path: str, side: int) -> Image.Image:
    try:
        return ImageOps.fit(open_image(path, least=side), (side, side), Image.Resampling.LANCZOS)
    except ImageError:  # gone since it was embedded
        return Image.new("RGB", (side, side), "gray")
