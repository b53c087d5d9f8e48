"""One stage of a run: from its last checkpoint, or from its start, to its model."""

from selftaught.data import Skipped, check_skipped, skipped_table
from selftaught.embedder import Embedder
from selftaught.errors import Collapse, counted, printable
from selftaught.files import delete, is_made_after, remove_leftovers, write_atomically
from selftaught.model_files import DESCRIPTION, WEIGHTS
from selftaught.networks import count_photos_per_thing
from selftaught.parallel import rank, run_on_first
from selftaught.retrieval import CLEAR_STEP
from selftaught.run_folder import FEATURES, SKIPPED, Choice, is_finished, read_skipped
from selftaught.training.assemble import Context, Parts, assemble, find_start, prepare
from selftaught.training.automatic import choose_neighbors
from selftaught.training.checkpoint import Checkpoint, load_checkpoint
from selftaught.training.evaluation import Passes, Unreadable
from selftaught.training.images import advise_start
from selftaught.training.legs import describe_rates
from selftaught.training.logbook import signals_line
from selftaught.training.loop import Loop
from selftaught.training.model import find_exponent, has_floor, save_model
from selftaught.training.semi_supervised import Stage


def foretell(stages: list[Stage], context: Context) -> Embedder:
    """Print what stages would do and take; returns the model that the last stage would start from."""
    for stage in stages:
        if stage.title:
            context.reporter.say(stage.title)
        checkpoint = load_checkpoint(stage.folder)
        if checkpoint is not None and stage is stages[-1] and _is_done(stage, checkpoint):
            return _tell_done(stage, context)
        images = stage.images if checkpoint is None else stage.images.only_of(checkpoint.state, context.run)
        start = find_start(stage, context) if checkpoint is None and stage.starts_from is None else None
        done = 0 if checkpoint is None else checkpoint.state.epoch
        _, backbone, device = prepare(stage, images, checkpoint is not None, context, start, done)
    context.reporter.say("nothing was written: the same command without --dry-run trains")
    if checkpoint is not None:
        return Embedder.load(context.run, device, context.own)
    if stage.record.from_run is not None:
        return context.take_origin(stage.record.from_run, device)
    return Embedder.untrained(backbone, device, context.own is not None)


def train_stage(stage: Stage, context: Context) -> Embedder:
    """Train a stage from its last checkpoint, or from its start."""
    if stage.title:
        context.reporter.say(stage.title)
    if rank() == 0:
        remove_leftovers(stage.folder)
    checkpoint = load_checkpoint(stage.folder)
    images = stage.images
    if checkpoint is not None:
        images = images.only_of(checkpoint.state, context.run)
        more = set(stage.images.training.files) - set(checkpoint.state.files) - read_skipped(stage.folder)
        if more:
            context.reporter.say(
                f"{counted(len(more), 'new image')} in {printable(images.training.root)}, without which the run goes "
                f"on; a new run that learns from all and begins with its network: {advise_start(context.run)}"
            )
        if run_on_first(lambda: _is_done(stage, checkpoint)):
            return _tell_done(stage, context)
    skipped: list[Skipped] = []
    passes: Passes = {}
    neighbors: Choice | None = None
    while True:
        try:
            with assemble(stage, images, checkpoint is not None, context, passes, neighbors) as parts:
                if neighbors is None and checkpoint is None and stage.record.requested.neighbors is None:
                    neighbors = _neighbors_for(parts)
                    if neighbors.value != parts.settings.neighbors:
                        continue  # once more: much depends on it, and the pass over the images is kept
                return _train_parts(parts, checkpoint)
        except Unreadable as error:  # found in the first pass over all images: start again without them
            if checkpoint is not None:
                raise
            skipped += error.skipped
            file = stage.folder / SKIPPED
            if rank() == 0:
                write_atomically(file, skipped_table(skipped))
            left_out = counted(len(error.skipped), "image")
            context.reporter.say(f"left out {left_out} that cannot be read: {printable(file)}")
            check_skipped(error.images, error.skipped, allow=stage.record.allow_skipped)
            images = images.without(error.images, error.skipped)


def _tell_done(stage: Stage, context: Context) -> Embedder:
    where, device = printable(stage.folder), context.overrides.get("device", stage.record.requested.device)
    context.reporter.say(f"finished: the model is in {where}; --epochs with a larger number goes on")
    return Embedder.load(stage.folder, device, context.own)


def _is_done(stage: Stage, checkpoint: Checkpoint) -> bool:
    """Whether a stage has made the model of its last epoch: one that is there may be of an earlier leg."""
    done, asked, chosen = checkpoint.state.epoch, stage.record.requested.epochs, stage.record.settings
    last = chosen is not None and chosen.epochs == done and asked in (None, done)
    made = all(is_made_after(stage.folder / name, checkpoint.file) for name in (WEIGHTS, DESCRIPTION))
    return last and made and is_finished(stage.folder) and not (stage.folder / FEATURES).exists()


def _neighbors_for(parts: Parts) -> Choice:
    """The number of neighbors for these images; the usual one if the network knows nothing or the batch is given."""
    if not parts.record.pretrained or parts.record.requested.batch_size is not None:
        return choose_neighbors(None)
    learner = parts.learner
    heads = [parts.evaluation.training_set(parts.images, view) for view in ("squash", *learner.more_views)]
    views = [embeddings[learner.batch_head] for embeddings in heads]
    return choose_neighbors(run_on_first(lambda: count_photos_per_thing(*views, least_step=CLEAR_STEP)))


def _train_parts(parts: Parts, checkpoint: Checkpoint | None) -> Embedder:
    """Run the loop to its end, and save the model."""
    say, loop = parts.context.reporter.say, Loop(parts)
    if checkpoint is None:
        state = loop.begin()
        say(f"before training: {signals_line(state.start)}")
    else:
        state = loop.restore(checkpoint)
        parts.evaluation.exponent = find_exponent(parts)
        if checkpoint.passed_over is not None:
            say(f"{printable(checkpoint.passed_over)} is damaged: going on from an earlier state")
        say(f"resumed after epoch {state.epoch}" + (f" and step {state.step} of the next" if state.step else ""))
        if state.epoch < loop.epochs:
            say(describe_rates(parts.settings, parts.record.leg, state.epoch))
            if 0 < state.epoch == parts.record.leg and not state.step:
                loop.begin_leg(state)
    parts.evaluation.passes = None
    if parts.reader.note:
        say(parts.reader.note)
    parts.logbook.resume(state)
    try:
        loop.go(state)
    except Collapse:
        good = load_checkpoint(parts.folder)
        assert good is not None
        loop.restore(good)
        save_model(parts, finished=False)
        raise
    finally:
        parts.logbook.close(state)
    embedder = save_model(parts)
    if rank() == 0:  # not needed after training, and they can be larger than the images
        delete(parts.folder / FEATURES)
    if not has_floor(parts):  # otherwise the verdict has already said it
        last = state.history[-1] if state.history else state.start
        gained = f" (before training {state.start['recall@1']:.1%})" if "recall@1" in last else ""
        begun = "" if parts.record.pretrained else ", which began with random weights,"
        say(f"the model{begun} is in {printable(parts.folder)}; after its last epoch: {signals_line(last)}{gained}")
    return embedder
