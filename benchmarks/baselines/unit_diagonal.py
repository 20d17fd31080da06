"""Low-rank noise beside a standard deviation of one that is not learned."""

from typing import Any

import keras
from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.base.validation import check_integer
from keras_het.covariances.low_rank import LowRank
from keras_het.ops.normal import DiagonalNormal


@keras.saving.register_keras_serializable("benchmarks")
class UnitDiagonal(LowRank):
    """I + V(x) V(x)': as `LowRank`, with d = 1 for every entry and input, so that no density grows without bound.

    Args:
        num_factors: R, from 0 (the identity) to the number of entries.
        kwargs: other arguments of `LowRank`; `initial_scale` is the norm of the rows of V at the start.
    """

    def __init__(self, num_factors: int = 1, **kwargs: Any) -> None:
        super().__init__(num_factors, **kwargs)

    def check(self, units: int) -> None:
        self.num_factors = check_integer("num_factors", self.num_factors, 0, units)

    def build(self, input_shape: Any) -> None:
        if self.num_factors:
            self.make_maps(self.starting_scale(), input_shape)

    def class_axes(self) -> dict[str, int | None]:
        return {path: axis for path, axis in super().class_axes().items() if path.startswith("factor/")}

    def distribution(self, x: Tensor, loc: Tensor) -> Any:
        """The Gaussian for features `(..., D)` and means `(..., K)`.

        Args:
            x: features, `(..., D)`.
            loc: means, `(..., K)`.
        """
        if self.num_factors:
            return super().distribution(x, loc)
        return DiagonalNormal(loc, ops.ones_like(loc), size=self.size)

    def standard_deviations(self, x: Tensor) -> Any:
        """d = 1, `(..., K)`.

        Args:
            x: features, `(..., D)`.
        """
        return ops.ones((*ops.shape(x)[:-1], self.units), dtype=x.dtype)
