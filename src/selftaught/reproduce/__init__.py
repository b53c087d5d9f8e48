"""The paper's tables and figures, from recipes to files."""
