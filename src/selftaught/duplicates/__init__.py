"""Copies of one picture in a collection: found, listed, shown, and moved by a script."""

from selftaught.duplicates.copies import SAMPLE as SAMPLE
from selftaught.duplicates.copies import Duplicates as Duplicates
from selftaught.duplicates.copies import distances_of_known_copies as distances_of_known_copies
from selftaught.duplicates.copies import find_copies as find_copies
from selftaught.duplicates.copies import leave_out_links as leave_out_links
from selftaught.duplicates.page import show_groups as show_groups
from selftaught.duplicates.page import write_duplicates_page as write_duplicates_page
from selftaught.duplicates.pictures import find_same_bytes as find_same_bytes
from selftaught.duplicates.script import moving_script as moving_script
