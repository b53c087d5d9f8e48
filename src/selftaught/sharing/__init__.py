"""A finished model as a folder that others can use, and on the model hub."""

from selftaught.sharing.folder import Shared as Shared
from selftaught.sharing.folder import write_shared as write_shared
from selftaught.sharing.history import add_history as add_history
from selftaught.sharing.hub import download as download
from selftaught.sharing.hub import looks_like_repository as looks_like_repository
from selftaught.sharing.hub import upload as upload
