"""Harness, data, result files and pages that the benchmarks share."""
