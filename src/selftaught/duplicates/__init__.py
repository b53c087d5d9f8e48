"""Copies of one picture in a collection: found, listed, shown, and moved by a script."""

from selftaught.duplicates.copies import SAMPLE, Duplicates, distances_of_known_copies, find_copies, leave_out_links
from selftaught.duplicates.page import show_groups, write_duplicates_page
from selftaught.duplicates.pictures import find_same_bytes
from selftaught.duplicates.script import moving_script
