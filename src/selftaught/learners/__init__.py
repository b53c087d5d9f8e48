"""Methods of learning embeddings, behind one small interface."""

from selftaught.learners.kmeans import ClusterSettings, run_kmeans
from selftaught.learners.learner import VIEWS, Learner
from selftaught.learners.registry import (
    METHODS,
    build_learner,
    describe_settings,
    find_method,
    has_setting,
    name_method,
)
from selftaught.learners.settings import change_settings, load_settings, make_settings, parse_settings, settings_for
from selftaught.learners.stml import STML, STMLSettings
