"""Groups of photos with their names: found, kept in a file, found again in new photos, shown."""

from selftaught.named_groups.page import write_groups_page
from selftaught.named_groups.sorted_photos import find_new_groups, make_links, sort_photos
from selftaught.named_groups.table import read_groups
