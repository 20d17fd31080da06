"""
Title: Which targets of a regression are wrong
Description: Targets that stray too far from their prediction, measured by the noise that is usual at that place.
Seeds: 0
"""

import keras
import numpy as np

import keras_het

rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, (1500, 1))
y = np.sin(2 * x) + (0.1 + 0.2 * (x + 2)) * rng.normal(size=(1500, 1))
y[1000:1005] += 5  # five slips of the pen

keras.utils.set_random_seed(0)
dense = keras.layers.Dense
mean = keras.Sequential([keras.Input((1,)), dense(32, "tanh"), dense(1)])
mean.compile(keras.optimizers.Adam(0.02), "mse")
mean.fit(x[:500], y[:500], epochs=30, verbose=0)
convert = keras_het.models.heteroscedastic_regression
model = convert(mean, x[500:1000], y[500:1000])
model.fit(x[:500], y[:500], epochs=30, verbose=0)

outputs = model.predict_distribution(x[1000:], verbose=0)
print(keras_het.explain.find_target_issues(outputs, y[1000:]))
