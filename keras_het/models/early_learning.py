"""Early-learning regularisation: earlier predictions of an example keep the model from memorising its label error."""

from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import as_numpy
from keras_het.base.graph import model_inputs
from keras_het.base.internals import argument_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.replicas import check_one_replica
from keras_het.base.validation import check_choice, check_integer, check_number, check_weights
from keras_het.criteria.criterion import Criterion, find_criteria
from keras_het.losses.crossentropy import Crossentropy
from keras_het.ops.log_space import bounded_max

MAX_EXAMPLES = 1 << 24  # sample weights are float32, which would round larger indices
MAX_MEMORY_BYTES = 2 << 30
# Rounding error of stored numbers near one.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11}


def with_index(num_examples: int, sample_weight: Any = None) -> np.ndarray:
    """Returns sample weights with the index of each example, for `EarlyLearning`.

    Keras shuffles and splits sample weights together with the examples, so the model gets the index of each example in
    any order: `model.fit(x, y, sample_weight=with_index(len(y)))`. A `tf.data.Dataset` or a `PyDataset` must yield
    `(x, y, weights)`, where weights are rows of this array, joined to the examples before shuffling. An example of
    index -1 gets the plain loss, and nothing is stored for it.

    Args:
        num_examples: N, an integer in [1, 2^24].
        sample_weight: `(N,)`, not negative; None gives all examples the same weight.
    Returns:
        shape `(N, 2)`, float32: weight, index.
    Raises:
        ValueError: for other numbers or shapes.

    Example:
        >>> with_index(3, sample_weight=[1.0, 0.5, 1.0]).tolist()
        [[1.0, 0.0], [0.5, 1.0], [1.0, 2.0]]
    """
    check_integer("num_examples", num_examples, 1, MAX_EXAMPLES)
    weights = check_weights(sample_weight, num_examples)
    weights = np.ones(num_examples) if weights is None else weights
    return np.stack([weights, np.arange(num_examples)], axis=1).astype("float32")


@keras.saving.register_keras_serializable("keras_het")
class EarlyLearning(keras.Model):
    """A functional model that trains with early-learning regularisation (ELR), which favours earlier predictions.

        t_n <- beta t_n + (1 - beta) p(x_n)                                                 (Liu et al. 2020, Section 4)
        -sum_k y_k log p_k + lambda log(1 - sum_k t_nk p_k)                                 (Liu et al. 2020, Section 4)

    A model learns correct labels before it memorises label errors. t_n, a running mean of the predictions for example
    n, still agrees with the correct label when the model begins to memorise a label error. t_n starts at zero and has
    no gradient. The first term is the compiled loss: any loss for exclusive classes with `from_logits`. The second term
    is weighted, masked and reduced like this loss, in float32. lambda = 0 gives the plain loss. If 1 - max_k t_nk is
    below its rounding error (6e-8, or 5e-4 in half precision), the rounding error replaces it. This keeps the second
    term, which has no lower bound in the paper, and its gradient finite.

    `with_index` passes the index of each example beside its weight. Metrics get only the weight. `evaluate` and
    validation need no index: they compute the plain loss and store nothing. An example of index -1, or with the
    `ignore_class` of the loss, also gets the plain loss. An index of N or more in an array of weights raises an error;
    from a data set it makes the loss nan. If a batch has an index twice, one of the two predictions is stored.

    The memory t is a weight of the model. Weight files, `.keras` files and checkpoints store it, and a loaded model
    continues training as if it had not stopped. `keras.Model(model.inputs, model.outputs)` and
    `keras.models.clone_model` give the plain model without the memory. To use a heteroscedastic head, convert with
    `keras_het.heteroscedastic` first, and make an `EarlyLearning` of the converted model's inputs and outputs.

    t has N K numbers, at most 2 GiB. A million examples of a thousand classes fit in half precision, where t stops
    moving within 0.0005 / (1 - beta) of p. On TensorFlow and PyTorch every step copies all of t. Several replicas or
    processes are refused, because each would overwrite the memory of the other replicas.

    Args:
        inputs: argument of `keras.Model`.
        outputs: logits or probabilities of K >= 2 exclusive classes, one symbolic tensor `(B, K)`.
        num_examples: N, the number of training examples; at most 2^24.
        strength: lambda >= 0; the paper uses 3 for ten classes and 7 for a hundred.
        momentum: beta, in [0, 1); the paper uses 0.7 for ten classes and 0.9 for a hundred.
        memory_dtype: dtype of t, "float32" or "float16".
        name: argument of `keras.Model`.
        kwargs: arguments of `keras.Model`.

    Attributes:
        memory: t, a weight of shape `(N + 1, K)`; the last row belongs to examples without an index.
    Raises:
        ValueError: for arguments outside these ranges, or a memory of more than 2 GiB; in training, for weights without
            an index, or an index of N or more; for a loss that is not for exclusive classes.
    Source: Liu, Niles-Weed, Razavian and Fernandez-Granda, NeurIPS 2020, "Early-learning regularization prevents
        memorization of noisy labels".

    Example:
        >>> inputs = keras.Input((2,))
        >>> model = EarlyLearning(inputs, keras.layers.Dense(3)(inputs), num_examples=8)
        >>> model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        >>> history = model.fit(ops.ones((8, 2)), ops.arange(8) % 3, sample_weight=with_index(8), verbose=0)
        >>> tuple(model.memory.shape)
        (9, 3)
    """

    def __init__(
        self,
        inputs: Any,
        outputs: Any,
        num_examples: int,
        strength: float = 3.0,
        momentum: float = 0.7,
        memory_dtype: str = "float32",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_if(not keras.utils.is_keras_tensor(outputs), "outputs", "be one symbolic tensor", kind=outputs)
        is_classifier = len(outputs.shape) == 2 and (outputs.shape[1] or 0) >= 2
        refuse_if(not is_classifier, "outputs", "have shape (B, K) with K >= 2", shape=outputs)
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        self.num_examples = check_integer("num_examples", num_examples, 1, MAX_EXAMPLES)
        self.strength = check_number("strength", strength, low=0.0)
        self.momentum = check_number("momentum", momentum, low=0.0)
        refuse_if(self.momentum >= 1.0, "momentum", "be in [0, 1)", value=momentum)
        self.memory_dtype = check_choice("memory_dtype", memory_dtype, tuple(ROUNDING))
        self._check_size(outputs.shape[1])
        self.memory = self.add_weight(
            name="memory",
            shape=(self.num_examples + 1, outputs.shape[1]),
            initializer="zeros",
            dtype=self.memory_dtype,
            trainable=False,
            autocast=False,
        )

    def _check_size(self, units: int) -> None:
        limit = MAX_MEMORY_BYTES // ((4 if self.memory_dtype == "float32" else 2) * units) - 1
        remedy = '. memory_dtype="float16" halves it' if self.memory_dtype == "float32" else ""
        rule = f"be at most {limit} for {units} classes, or the memory exceeds {MAX_MEMORY_BYTES >> 30} GiB{remedy}"
        refuse_if(self.num_examples > limit, "num_examples", rule, value=self.num_examples)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains like `keras.Model.fit`, with weights of `with_index`."""
        _check_range(kwargs.get("sample_weight"), self.num_examples)
        return super().fit(*args, **kwargs)

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains like `keras.Model.train_on_batch`, with rows of `with_index`."""
        _check_range(sample_weight, self.num_examples)
        return super().train_on_batch(x, y, sample_weight, *args, **kwargs)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Computes the compiled loss and, in training, adds the regularisation term. Keras calls it."""
        (weight, index), term = _split(sample_weight), _Term(self, self.loss)
        if not training:
            return super().compute_loss(x, y, y_pred, weight, training)
        self._check_training(sample_weight, index)
        # Copies, because Keras multiplies weights by the mask of `ignore_class`, on PyTorch in place.
        loss = super().compute_loss(x, y, y_pred, ops.copy(weight), training)
        return loss + term((y, index), y_pred, ops.copy(weight))

    def _check_training(self, sample_weight: Any, index: Any) -> None:
        if index is None:
            example = "`fit(x, y, sample_weight=keras_het.models.with_index(len(y)))`"
            raise refusal("sample_weight", f"have the index of every example in training: {example}", "no index")
        check_one_replica(f"The model {self.name!r}", "each replica would store only a part of the examples")
        _check_precision(sample_weight, self.num_examples)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Computes the metrics without the index. Keras calls it."""
        return super().compute_metrics(x, y, y_pred, _split(sample_weight)[0])

    def get_config(self) -> dict[str, Any]:
        return {
            "graph": keras.Model(model_inputs(self), self.output, name=self.name).get_config(),
            "trainable": self.trainable,
            "num_examples": self.num_examples,
            "strength": self.strength,
            "momentum": self.momentum,
            "memory_dtype": self.memory_dtype,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Self:
        """Makes a model from the result of `get_config`; raises a ValueError for a graph that is not functional."""
        arguments = dict(config)
        graph, is_trainable = arguments.pop("graph", None), arguments.pop("trainable", True)
        is_functional = isinstance(graph, dict) and {"name", "layers", "input_layers", "output_layers"} <= set(graph)
        refuse_if(not is_functional, "graph", "be the config of a functional model", kind=graph)
        plain = keras.Model.from_config(graph, custom_objects)
        model = cls(model_inputs(plain), plain.output, name=plain.name, **arguments)
        if not is_trainable:  # setting True would unfreeze frozen layers
            model.trainable = False
        return model


class _Term(Crossentropy):
    """Regularisation term lambda log(1 - sum_k t_k p_k), reduced like the compiled loss; calling it updates t."""

    def __init__(self, model: EarlyLearning, identifier: Any) -> None:
        criterion = next(find_criteria(identifier), Criterion(None))  # the only loss, also in a list or a dict
        loss = criterion.loss
        from_logits = argument_of(loss, "from_logits")
        is_exclusive = criterion.label_form(model.output.shape[1]) in ("integers", "vectors", "either", "")
        if not isinstance(from_logits, bool) or not is_exclusive:
            example = "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
            rule = f"be for exclusive classes, with `from_logits`, such as {example}"
            raise refusal("loss", rule, value=criterion.identifier)
        ignored, kwargs = argument_of(loss, "ignore_class"), {"reduction": loss.reduction, "dtype": loss.dtype}
        super().__init__(from_logits, ignored, name="early_learning", **kwargs)
        self.model = model

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Computes the term of every example, `(B,)`, from (labels, indices) and outputs `(B, K)`."""
        labels, index = y_true
        model, is_valid = self.model, self.targets(labels, y_pred)[1]
        index, p = ops.cast(index, "int32"), ops.exp(self.log_probs(y_pred))
        has_memory = ops.logical_and(index >= 0, index < model.num_examples)
        has_memory = has_memory if is_valid is None else ops.logical_and(has_memory, is_valid)
        row = ops.where(has_memory, index, model.num_examples)
        memory = model.momentum * ops.cast(ops.take(model.memory.value, row, axis=0), p.dtype)
        memory = memory + (1.0 - model.momentum) * ops.stop_gradient(p)
        memory = ops.where(has_memory[:, None], memory, 0.0)  # else all examples without an index share a memory
        new_memory = ops.scatter_update(model.memory.value, row[:, None], ops.cast(memory, model.memory_dtype))
        model.memory.assign(new_memory)
        # A sum of positive terms, because the rounding error of 1 - sum t p would dominate near zero and disturb a
        # trained model.
        top = bounded_max(memory, 0.0, axis=-1)
        rest = ops.maximum(1.0 - top[:, 0], ROUNDING[model.memory_dtype]) + ops.sum(p * (top - memory), axis=-1)
        term = ops.where(index < model.num_examples, model.strength * ops.log(rest), np.nan)
        return self.mask_ignored(term, is_valid)


def _split(sample_weight: Any) -> tuple[Any, Any]:
    """Splits sample weights into weights and indices, `(B,)` each; indices can be None."""
    if sample_weight is None or len(sample_weight.shape) != 2 or sample_weight.shape[-1] != 2:
        return sample_weight, None
    return sample_weight[:, 0], sample_weight[:, 1]


def _check_range(sample_weight: Any, num_examples: int) -> None:
    """Raises a ValueError for an index beyond the memory, which would make the loss nan."""
    index = _split(as_numpy(sample_weight))[1] if hasattr(sample_weight, "shape") else None
    highest = -1.0 if index is None or not len(index) else float(index.max())
    rule = f"have indices below `num_examples`, {num_examples}: make the model for all training examples"
    refuse_if(highest >= num_examples, "sample_weight", rule, f"index {highest:.0f}")


def _check_precision(sample_weight: Any, num_examples: int) -> None:
    """Raises a ValueError if half precision, for example of Keras' floatx, rounds indices."""
    name = str(sample_weight.dtype)  # backends add different text to the name
    limit = 1 << 8 if "bfloat16" in name else 1 << 11 if "float16" in name else MAX_EXAMPLES
    rule = f"be float32 for more than {limit} examples: keras.config.set_floatx"
    refuse_if(num_examples > limit, "sample_weight", rule, f"{sample_weight.dtype}, num_examples={num_examples}")
