"""
Title: Which labels of label vectors are wrong or missing
Description: Positives that nobody marked, found by the labels beside them, with a model that was trained on other examples.
Seeds: 0
"""

import keras
import numpy as np

import keras_het
from keras_het import analysis, explain

rng = np.random.default_rng(0)
x = rng.normal(size=(2000, 3)).astype("float32")
scene = rng.choice([-3, 3], (2000, 1))
y = (x + scene * [1, 1, -1] > 0).astype("float32")
y[1000:1020, 1] = 0  # nobody marked the sea

keras.utils.set_random_seed(0)
inputs = keras.Input((3,))
head = keras_het.layers.JointHeteroscedasticDense(3, num_factors=1)
model = keras_het.models.DistributionModel(inputs, head(inputs))
loss = keras_het.losses.JointMultiLabelCrossentropy()
model.compile(keras.optimizers.Adam(0.05), loss)
model.fit(x[:1000], y[:1000], batch_size=100, epochs=15, verbose=0)

p = explain.joint_labels(model, x[1000:]).given_others(y[1000:])
names = ["beach", "sea", "snow"]
print(analysis.find_multi_label_issues(p, y[1000:], class_names=names))
