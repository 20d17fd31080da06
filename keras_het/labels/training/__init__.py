"""Training of classifiers on noisy labels, and their comparison by held-out labels."""
