"""The regulariser of a transition matrix T that grows as T gets nearer to the identity, so that T takes on the noise.

Without a regulariser a learned T may stay at the identity, while the base model learns the noise (Sukhbaatar et al.
2014, section 3). Begin with the paper's ridge, which is Keras' own `L2`: on digits with 50% random and 45% pair flips
its error on clean labels is .107 and .037, the error of the trace .222 and .130 (`benchmarks/results/label_flip.md`).
The ridge pushes less as the rows spread. The trace pushes on until the classes change places, because a permutation can
have the trace 0. For several annotators T is `(M, K, K)`, and the trace is the sum over them.
"""

from typing import Any

import keras
from keras import ops

from keras_het.base.validation import check_number


@keras.saving.register_keras_serializable("benchmarks")
class Trace(keras.regularizers.Regularizer):
    """strength * sum_i T_ii: how many labels are kept.

    Begin with `keras.regularizers.L2`, which has half of its error on digits or less. For several annotators the trace
    is the sum over them, which Tanno et al. 2019 add to the crossentropy (section 3.2). The true T have the least trace
    of all T that explain the labels, if the mean of the true T over the annotators is dominated by its diagonal.

    Args:
        strength: at least 0.

    Example:
        >>> round(float(Trace(0.5)(ops.array([[0.75, 0.25], [0.5, 0.5]]))), 3)
        0.625
    """

    def __init__(self, strength: float = 0.1):
        self.strength = check_number("strength", strength, low=0.0)

    def __call__(self, x: Any) -> Any:
        return self.strength * ops.sum(ops.diagonal(x, axis1=-2, axis2=-1))

    def get_config(self) -> dict[str, Any]:
        return {"strength": self.strength}
