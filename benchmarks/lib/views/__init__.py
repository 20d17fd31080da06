"""Tables of pages that are made of others: chosen rows and columns, in plain words.

Each takes `of(name, title)`, which returns the table of a result file, and returns a table: rows of strings, the first
its head.
"""

from benchmarks.lib.views.atlas import (
    distances,
    floors,
    floors_of_recipe,
    harm_100,
    harm_accuracy,
    harm_elsewhere,
    harm_nll,
    narrow,
)
from benchmarks.lib.views.cost import (
    backbone,
    beside_edward2,
    compilers,
    estimate,
    gpu_choose,
    gpu_speed,
    nodes,
    speed,
    speed_narrow,
)
from benchmarks.lib.views.labels import (
    begin_with,
    choice_elsewhere,
    clean_probabilities,
    demo,
    diabetes,
    label_wave,
    linnerud,
    one_training,
    planted_covariance,
    swapped_classes,
    when_it_pays,
    wrong_labels,
)

__all__ = [
    "backbone",
    "begin_with",
    "beside_edward2",
    "choice_elsewhere",
    "clean_probabilities",
    "compilers",
    "demo",
    "diabetes",
    "distances",
    "estimate",
    "floors",
    "floors_of_recipe",
    "gpu_choose",
    "gpu_speed",
    "harm_100",
    "harm_accuracy",
    "harm_elsewhere",
    "harm_nll",
    "label_wave",
    "linnerud",
    "narrow",
    "nodes",
    "one_training",
    "planted_covariance",
    "speed",
    "speed_narrow",
    "swapped_classes",
    "when_it_pays",
    "wrong_labels",
]
