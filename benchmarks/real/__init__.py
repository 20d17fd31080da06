"""Labels that people and rules gave, and weights that others trained: what the package is worth on them."""
