"""The figures of the paper and its appendix, drawn from a run."""

from selftaught.reproduce.figures.draw import draw_figures

__all__ = ["draw_figures"]
