"""A finished model as a folder that others can use, and on the model hub."""

from selftaught.sharing.folder import Shared, write_shared
from selftaught.sharing.history import add_history
from selftaught.sharing.hub import download, looks_like_repository, upload
