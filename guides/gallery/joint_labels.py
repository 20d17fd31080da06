"""
Title: Labels that go together
Description: The probability of a whole label vector, vectors that are drawn, and a missing label by those that are known.
Seeds: 0
"""

import keras
import numpy as np

import keras_het

rng = np.random.default_rng(0)
x = rng.normal(size=(1000, 3)).astype("float32")
scene = 3 * rng.normal(size=(1000, 1))  # beach and sea, or snow
u = x + scene * [1, 1, -1]
y = (rng.random(u.shape) < 1 / (1 + np.exp(-u))).astype("float32")

keras.utils.set_random_seed(0)
inputs = keras.Input((3,))
head = keras_het.layers.JointHeteroscedasticDense(3, num_factors=1)
model = keras_het.models.DistributionModel(inputs, head(inputs))
loss = keras_het.losses.JointMultiLabelCrossentropy()
model.compile(keras.optimizers.Adam(0.05), loss)
model.fit(x, y, batch_size=100, epochs=10, verbose=0)

joint = keras_het.explain.joint_labels(model, np.zeros((1, 3)))
print("beach, sea, snow by themselves:", joint.probabilities[0].round(2))
for vector in ([1, 1, 0], [1, 0, 1], [0, 0, 1]):
    print(vector, np.exp(joint.log_prob(vector)).round(2))
print("drawn:", *joint.sample(6)[:, 0])
print("given beach:", joint.given_others([1, -1, -1])[0].round(2)[1:])
