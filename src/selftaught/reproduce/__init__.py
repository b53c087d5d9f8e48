"""The paper's tables and figures, from recipes to files."""

from selftaught.reproduce.figures.draw import draw_figures
from selftaught.reproduce.reproduction import reproduce_table
