"""Groups of photos with their names: found, kept in a file, found again in new photos, shown."""

from selftaught.named_groups.page import write_groups_page as write_groups_page
from selftaught.named_groups.sorted_photos import find_new_groups as find_new_groups
from selftaught.named_groups.sorted_photos import make_links as make_links
from selftaught.named_groups.sorted_photos import sort_photos as sort_photos
from selftaught.named_groups.table import read_groups as read_groups
