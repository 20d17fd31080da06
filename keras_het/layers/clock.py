"""A clock, which gives the key of the noise of every training step."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_het")
class Clock(keras.layers.Layer):
    """A seed and a step counter, of which the noise is a function; the counter is saved with the weights.

    Args:
        seed: of the noise.
    """

    def __init__(self, seed: int, **kwargs: Any) -> None:
        super().__init__(**{"name": "clock", **kwargs})
        self.seed = seed

    def build(self, input_shape: Any = None) -> None:
        self.step = self.add_weight(
            name="step", shape=(), dtype="int32", initializer="zeros", trainable=False, aggregation="only_first_replica"
        )

    def tick(self) -> tuple[int, Any]:
        """Returns the key of this step, (seed, step), and advances the counter."""
        step = ops.convert_to_tensor(self.step) * 1  # a copy: on two backends the assignment would change the tensor
        self.step.assign(step + 1)
        return self.seed, step

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "seed": self.seed}
