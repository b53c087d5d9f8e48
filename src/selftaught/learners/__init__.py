"""Methods of learning embeddings, behind one small interface."""

from selftaught.learners.learner import Learner
from selftaught.learners.stml import STML

__all__ = ["STML", "Learner"]
