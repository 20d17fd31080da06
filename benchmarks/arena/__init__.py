"""Methods against kinds of wrong labels, side by side: `python -m benchmarks.arena`."""
