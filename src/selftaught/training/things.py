"""How many photos of one thing a run learns from, as its network sees them before the first step."""

from selftaught.networks import count_photos_per_thing
from selftaught.parallel import run_on_first
from selftaught.retrieval import CLEAR_STEP
from selftaught.run_folder import Choice
from selftaught.training.assemble import Parts
from selftaught.training.automatic import choose_neighbors


def look_for_things(parts: Parts) -> Choice:
    """The number of neighbors for these images; the usual one if the network knows nothing or the batch is given."""
    if not parts.record.pretrained or parts.record.requested.batch_size is not None:
        return choose_neighbors(None)
    learner = parts.learner
    heads = [parts.evaluation.training_set(parts.images, view) for view in ("squash", *learner.more_views)]
    views = [embeddings[learner.batch_head] for embeddings in heads]
    return choose_neighbors(run_on_first(lambda: count_photos_per_thing(*views, least_step=CLEAR_STEP)))
