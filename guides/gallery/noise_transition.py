"""
Title: Which label stands for which class
Description: The transition matrix T[i, j] = p(label j | true class i), learned behind a network from noisy labels alone.
Seeds: 0
"""

import keras
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import keras_het
from keras_het.labels import corrupt, pair_flip

x, true = load_digits(return_X_y=True)
planted = pair_flip(10, 0.35)
y = corrupt(true, planted, seed=0)

keras.utils.set_random_seed(0)
dense, l2 = keras.layers.Dense, keras.regularizers.L2
body = dense(128, "relu", kernel_regularizer=l2(2e-3))
head = dense(10, "log_softmax", kernel_regularizer=l2(2e-3))
flips = keras_het.NoiseTransition(10, regularizer=l2(0.07))
model = keras.Sequential([keras.Input((64,)), body, head, flips])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.004), loss)
callbacks = [keras_het.callbacks.ReleaseTransition(after=10)]
training = {"batch_size": 128, "epochs": 60, "verbose": 0}
model.fit(x / 16, y, callbacks=callbacks, **training)

figure, axes = plt.subplots(1, 2, figsize=(7, 3.7), layout="constrained")
learned = keras.ops.convert_to_numpy(flips.transition)
shown = {"planted": planted, "learned": learned}
for ax, (name, t) in zip(axes, shown.items(), strict=True):
    ax.imshow(t, cmap="Blues", vmin=0, vmax=1)
    ax.set(xlabel="label", ylabel="true class", title=name)
figure.savefig("noise_transition.png")
