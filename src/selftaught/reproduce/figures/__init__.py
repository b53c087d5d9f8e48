"""The figures of the paper and its appendix, drawn from a run."""
