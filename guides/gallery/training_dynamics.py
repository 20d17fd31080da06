"""
Title: How each label was learned
Description: Margins by epoch, in one training that has seen all labels: those of wrong labels stay below zero for long.
Seeds: 0
"""

import keras
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import keras_het
from keras_het.labels import corrupt, symmetric

x, true = load_digits(return_X_y=True)
noise = symmetric(10, 0.1)
y = corrupt(true, noise, seed=0)

keras.utils.set_random_seed(0)
dense = keras.layers.Dense
model = keras.Sequential([dense(64, "relu"), dense(10, "softmax")])
adam = keras.optimizers.Adam(0.005)
model.compile(adam, "sparse_categorical_crossentropy")
dynamics = keras_het.callbacks.TrainingDynamics(x / 16, y)
training = {"batch_size": 128, "epochs": 15, "verbose": 0}
model.fit(x / 16, y, callbacks=[dynamics], **training)

figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for part, color in ((y == true, "tab:blue"), (y != true, "tab:orange")):
    curves = dynamics.margins[:, part][:, :40]
    ax.plot(range(1, 16), curves, color=color, alpha=0.3)
ax.axhline(0, color="black", linewidth=0.8)
ax.set(xlabel="epoch", ylabel="margin", title="right labels are blue")
figure.savefig("training_dynamics.png")

issues = keras_het.labels.find_issues(dynamics)
print(*str(issues).splitlines()[:6], sep="\n")
