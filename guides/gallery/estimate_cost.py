"""
Title: What a head costs, before it is made
Description: Weights and memory of every kind of head beside a Dense layer, and whether the memory is enough.
Seeds: 0
"""

import keras_het

sizes = {"units": 1000, "features": 768, "batch": 128}
print(keras_het.estimate_cost(**sizes, num_factors=15, memory=2**30))
