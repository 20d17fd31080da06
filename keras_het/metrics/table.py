"""The base class of metrics that need an order of all examples: a table of fixed size holds them."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.replicas import check_one_replica
from keras_het.base.stateless import in_compiled_step
from keras_het.base.validation import check_integer
from keras_het.metrics.metric import LOWEST, ProbabilityMetric

MAX_CAPACITY = 1 << 26  # 768 MiB: a file may ask for any number


class Rows(NamedTuple):
    """A table in ascending order of its scores; empty places come first, with a weight of zero.

    Attributes:
        scores: as stored, `(N,)`.
        values: as stored, `(N,)`.
        weights: as stored, `(N,)`.
        before: the place where rows of the same score begin, `(N,)`.
        after: the place where they end, `(N,)`.
    """

    scores: Any
    values: Any
    weights: Any
    before: Any
    after: Any

    def above(self, x: Any, places: Any) -> Any:
        """The sums of x, `(N,)`, from each of the places to the end."""
        sums = ops.concatenate([ops.zeros_like(x[:1]), ops.cumsum(ops.flip(x))])
        return ops.take(ops.flip(sums), places)


class TableMetric(ProbabilityMetric):
    """Base class of metrics that keep a score, a value and a weight of every example, up to a capacity.

    A subclass defines `figure`. Keras asks for the result after every step of `fit` and `evaluate`, and to sort the
    table takes far longer than a step. So within a compiled step, on JAX and TensorFlow, the result is nan. The
    progress bar, `train_on_batch` and `test_on_batch` show it, and so does an epoch whose `train_step` returns other
    logs than the metrics, for then Keras takes the logs of the last step. Otherwise the logs of an epoch have the
    figure of all examples, and `metric.result()` always does. On PyTorch every step sorts the examples so far.

    Args:
        capacity: the number of rows that it can hold, 1 to 2^26; with more, the result is nan.
        kwargs: arguments of `ProbabilityMetric`, such as `from_logits=True` for the outputs of a head.
    """

    def __init__(self, capacity: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.capacity = check_integer("capacity", capacity, 1, MAX_CAPACITY)
        self._columns = [
            self.add_weight(shape=(self.capacity,), initializer="zeros", dtype="float32", name=name)
            for name in ("scores", "values", "weights")
        ]
        self._count = self.add_weight(shape=(), initializer="zeros", dtype="int32", name="count")

    def figure(self, rows: Rows) -> Any:
        """The figure of a table; every subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} must define figure(rows)")

    def result(self) -> Any:
        """The figure of all examples; nan within a compiled step, or if there were more examples than room."""
        return ops.convert_to_tensor(np.float32("nan")) if in_compiled_step() else self._figure()

    def stateless_result(self, metric_variables: Any) -> Any:
        """See `keras.metrics.Metric`: the figure of all examples, also within a compiled function."""
        with keras.StatelessScope(state_mapping=list(zip(self.variables, metric_variables, strict=True))):
            return self._figure()

    def _figure(self):
        full = ops.convert_to_tensor(self._count) > self.capacity
        return ops.where(full, float("nan"), self.figure(self.rows()))

    def store(self, *columns: Any) -> None:
        """Adds rows: scores, values and weights, `(N,)` each."""
        rule = "each would fill a table of its own, and TensorFlow adds the tables number by number"
        check_one_replica(
            f"The metric {self.name!r}", f"{rule}; outside of the strategy, update it with y and model.predict(x)"
        )
        count, size = ops.convert_to_tensor(self._count), ops.shape(columns[0])[0]
        # Without enough room the last rows are overwritten: the result is nan then.
        start = ops.minimum(count, self.capacity - ops.minimum(size, self.capacity))
        for variable, column in zip(self._columns, columns, strict=True):
            rows = ops.cast(column[: self.capacity], "float32")
            variable.assign(ops.slice_update(ops.convert_to_tensor(variable), [start], rows))
        # The count stops when the table is full: it might overflow to a negative number.
        total = count + ops.cast(size, "int32")
        self._count.assign(ops.where(total > self.capacity, self.capacity + 1, total))

    def merge(self, metric: Any) -> None:
        count = int(ops.convert_to_numpy(metric._count))
        self.store(*(ops.convert_to_tensor(column)[: min(count, self.capacity)] for column in metric._columns))
        if count > self.capacity:
            self._count.assign(self.capacity + 1)

    def rows(self) -> Rows:
        """The table in order, on PyTorch without its empty places."""
        count = ops.convert_to_tensor(self._count)
        size = max(1, min(int(count), self.capacity)) if keras.config.backend() == "torch" else self.capacity
        present = ops.arange(size, dtype="int32") < count
        scores, values, weights = (ops.convert_to_tensor(column)[:size] for column in self._columns)
        scores, weights = ops.where(present, scores, LOWEST), ops.where(present, weights, 0.0)
        order = ops.argsort(scores)
        scores, values, weights = (ops.take(column, order) for column in (scores, values, weights))
        before, after = (ops.searchsorted(scores, scores, side=side) for side in ("left", "right"))
        return Rows(scores, values, weights, before, after)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "capacity": self.capacity}
