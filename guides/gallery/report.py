"""
Title: The report
Description: One page, which needs nothing from elsewhere: suspects with pictures, confused classes, calibration, and a table to correct labels in.
Seeds: 0
"""

import keras
from sklearn.datasets import load_digits

import keras_het
from keras_het import label_noise

x, true = load_digits(return_X_y=True)
noise = label_noise.symmetric(10, 0.1)
y = label_noise.corrupt_labels(true, noise, seed=0)

keras.utils.set_random_seed(0)
head = keras_het.HeteroscedasticDense(10, name="head")
layers = [keras.Input((64,)), keras.layers.Dense(64, "relu"), head]
model = keras.Sequential(layers, name="digits")
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss)
dynamics = keras_het.callbacks.TrainingDynamics(x / 16, y)
training = {"batch_size": 128, "epochs": 12, "verbose": 0}
model.fit(x / 16, y, callbacks=[dynamics], **training)

images = x.reshape(-1, 8, 8) / 16
issues = keras_het.analysis.find_label_issues(dynamics)
page = keras_het.report(model, x / 16, y, images=images, issues=issues)
print(page)
