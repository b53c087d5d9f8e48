"""Methods of learning embeddings, behind one small interface."""

from selftaught.learners.kmeans import ClusterSettings as ClusterSettings
from selftaught.learners.kmeans import run_kmeans as run_kmeans
from selftaught.learners.learner import VIEWS as VIEWS
from selftaught.learners.learner import Learner as Learner
from selftaught.learners.registry import METHODS as METHODS
from selftaught.learners.registry import build_learner as build_learner
from selftaught.learners.registry import describe_settings as describe_settings
from selftaught.learners.registry import find_method as find_method
from selftaught.learners.registry import has_setting as has_setting
from selftaught.learners.registry import name_method as name_method
from selftaught.learners.settings import change_settings as change_settings
from selftaught.learners.settings import load_settings as load_settings
from selftaught.learners.settings import make_settings as make_settings
from selftaught.learners.settings import parse_settings as parse_settings
from selftaught.learners.settings import settings_for as settings_for
from selftaught.learners.stml import STML as STML
from selftaught.learners.stml import STMLSettings as STMLSettings
