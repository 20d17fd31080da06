"""Benchmarks on labels by people and rules, with features and weights of public pretrained networks."""
