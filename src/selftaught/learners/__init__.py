"""Methods of learning embeddings, behind one small interface."""

from selftaught.learners.descriptions import describe_values, setting_descriptions
from selftaught.learners.kmeans import ClusterSettings
from selftaught.learners.kmeans import kmeans as run_kmeans
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

__all__ = [
    "METHODS",
    "STML",
    "VIEWS",
    "ClusterSettings",
    "Learner",
    "STMLSettings",
    "build_learner",
    "change_settings",
    "describe_settings",
    "describe_values",
    "find_method",
    "has_setting",
    "load_settings",
    "make_settings",
    "name_method",
    "parse_settings",
    "run_kmeans",
    "setting_descriptions",
    "settings_for",
]
