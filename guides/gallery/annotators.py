"""
Title: Who labels well, and who confuses what
Description: Four people who each labelled a part of the images, judged by their disagreements alone.
Seeds: 0
"""

import numpy as np

from keras_het.labels import aggregate, annotators, corrupt, symmetric

rng = np.random.default_rng(0)
names = ["cat", "dog", "fox", "owl"]
swapper = np.eye(4)[[0, 2, 1, 3]] * 0.8 + np.eye(4) * 0.2
people = {
    "Ada": symmetric(4, 0.05),
    "Ben": symmetric(4, 0.2),
    "Cyd": swapper,  # takes dogs for foxes, and foxes for dogs
    "Eve": np.full((4, 4), 0.25),  # does not look
}
true = rng.integers(4, size=1000)
labels = [corrupt(true, t) for t in people.values()]
labels = np.where(rng.random((1000, 4)) < 0.7, np.array(labels).T, -1)

found = aggregate(labels, num_classes=4)
table = annotators(
    found.transitions, labels, names=list(people), class_names=names
)
print(table)
