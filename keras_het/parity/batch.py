"""Batches: names of their arrays, and a random batch that fits the inputs and the loss of a model."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.graph import symbolic_inputs
from keras_het.base.internals import compile_arguments, layers_of
from keras_het.base.refusal import refusal
from keras_het.criteria.criterion import Criterion
from keras_het.parity.probe import as_tensors, intercept_calls

EXAMPLES, SEED = 4, 2021
UNKNOWN_LENGTH = 32


def pack(name: str, data: Any) -> dict[str, np.ndarray]:
    """Returns arrays by name: "x" for one array, "x:0" for the first of a list, "x.tokens" for an entry of a dict."""
    if data is None:
        return {}
    if isinstance(data, dict):
        return {f"{name}.{key}": np.asarray(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)) and all(hasattr(part, "shape") for part in data):
        return {f"{name}:{number}": np.asarray(part) for number, part in enumerate(data)}
    return {name: np.asarray(data)}


def unpack(name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Returns the data that `pack` named, or None."""
    if name in arrays:
        return arrays[name]
    keyed = {key.removeprefix(f"{name}."): value for key, value in arrays.items() if key.startswith(f"{name}.")}
    numbered = [value for key, value in arrays.items() if key.startswith(f"{name}:")]
    return keyed or numbered or None


def make_inputs(model: Any) -> Any:
    """Returns random inputs for a model, in the structure that it accepts.

    Floats are standard normal, and integers are 0 or 1. If an input reaches an Embedding, it has integers in its range.
    An input of integers or booleans with "mask" in its name ends in zeros. An axis of unknown length has 32 entries, or
    as many as the positions that an embedding of positions has.
    """
    inputs, sizes = _inputs_and_sizes(model)
    rng = np.random.default_rng(SEED)
    flat = [_make(tensor, size, rng) for tensor, size in zip(keras.tree.flatten(inputs), sizes, strict=True)]
    return keras.tree.pack_sequence_as(inputs, flat)


def make_second_inputs(model: Any, x: Any) -> Any:
    """Returns inputs that reach what random numbers do not, from the inputs of `make_inputs`.

    Floats have a row of zeros, one of rounded numbers with ties, one of negative and one of large numbers. Tokens have
    padding at the end or at the start, a token that repeats, and the largest index.
    """
    inputs, sizes = _inputs_and_sizes(model)
    flat = zip(keras.tree.flatten(inputs), keras.tree.flatten(x), sizes, strict=True)
    return keras.tree.pack_sequence_as(inputs, [_second(*each) for each in flat])


def _second(tensor: Any, array: np.ndarray, size: int | None) -> np.ndarray:
    length = array.shape[1] if array.ndim > 1 else 1
    is_padding = np.arange(length) >= (length + 1) // 2
    rows = []
    for number, row in enumerate(array):
        kind = number % EXAMPLES
        if not _is_integer(tensor) and size is None:
            rows.append([0.0 * row, np.round(row), -np.abs(row), 10.0 * row][kind])
            continue
        if "mask" in tensor.name and array.ndim > 1:
            rows.append(np.broadcast_to(~is_padding.reshape(-1, *[1] * (row.ndim - 1)), row.shape))
            continue
        largest = (size or 2) - 1
        token = [row, np.full_like(row, min(1, largest)), np.full_like(row, largest), row][kind]
        if array.ndim > 1 and length > 1:
            hidden = is_padding[::-1] if kind == EXAMPLES - 1 and not length % 2 else is_padding
            token = np.where(hidden.reshape(-1, *[1] * (row.ndim - 1)), 0, token)
        rows.append(token)
    return np.stack(rows).astype(array.dtype)


def _inputs_and_sizes(model: Any) -> tuple[Any, list[int | None]]:
    """Returns the symbolic inputs of a model, and for each the rows of the Embedding that it reaches."""
    try:
        inputs = symbolic_inputs(model)
    except ValueError as error:
        rule = "know the shapes of its inputs if no data are given (--data)"
        raise refusal("The model", rule, kind=model) from error
    positions = [layer.sequence_length for layer in layers_of(model) if hasattr(layer, "position_embeddings")]
    length = min([UNKNOWN_LENGTH, *(int(each) for each in positions if each)])
    inputs = keras.tree.map_structure(lambda x: _with_lengths(x, length), inputs)
    return inputs, _embedding_sizes(model, inputs)


def _with_lengths(tensor: Any, length: int) -> Any:
    shape = (tensor.shape[0] or EXAMPLES, *(length if axis is None else axis for axis in tensor.shape[1:]))
    return keras.Input(batch_shape=shape, dtype=tensor.dtype, name=tensor.name)


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _is_integer(tensor: Any) -> bool:
    return "int" in str(tensor.dtype) or str(tensor.dtype) == "bool"


def _make(tensor: Any, size: int | None, rng: np.random.Generator) -> np.ndarray:
    shape, dtype = _shape(tensor), str(tensor.dtype)
    if not _is_integer(tensor) and size is None:
        return rng.standard_normal(shape).astype("float64" if dtype == "float64" else "float32")
    if "mask" in tensor.name and len(shape) > 1:
        lengths = shape[1] - np.arange(shape[0]) % max(1, shape[1] // 2)
        first = np.arange(shape[1]) < lengths[:, None]
        return np.broadcast_to(first.reshape(*first.shape, *[1] * (len(shape) - 2)), shape).astype(dtype)
    return rng.integers(size or 2, size=shape).astype(dtype)


def _embedding_sizes(model: Any, inputs: Any) -> list[int | None]:
    """Returns for each input the rows of the smallest Embedding that it reaches, or None.

    An input reaches an Embedding if the inputs of the Embedding change when the input is one instead of zero.
    """
    flat = keras.tree.flatten(inputs)
    if not any(map(_is_embedding, layers_of(model))):
        return [None] * len(flat)

    def run(index_of_ones: int | None) -> dict[Any, np.ndarray]:
        """Returns the inputs of each Embedding if one input of the model is one, and the others are zero."""
        seen: dict[Any, np.ndarray] = {}

        def watch(layer: Any, call: Callable, arguments: tuple, options: dict) -> Any:
            if _is_embedding(layer) and layer not in seen:
                seen[layer] = np.array(ops.convert_to_numpy([*arguments, *options.values()][0]))
            return call(*arguments, **options)

        arrays = [np.full(_shape(x), float(number == index_of_ones), str(x.dtype)) for number, x in enumerate(flat)]
        with intercept_calls(model, watch):
            model(keras.tree.pack_sequence_as(inputs, as_tensors(arrays)), training=False)
        return seen

    zeros, *runs = [run(number) for number in (None, *range(len(flat)))]
    reached = [[layer.input_dim for layer in zeros if not np.array_equal(ones[layer], zeros[layer])] for ones in runs]
    return [min(sizes, default=None) for sizes in reached]


def _is_embedding(layer: Any) -> bool:
    return hasattr(layer, "input_dim") and hasattr(layer, "embeddings")


def make_labels(model: Any, x: Any, seed: int = SEED) -> Any:
    """Returns labels that fit the losses of a compiled model, or None if the model has no loss.

    Labels are classes, one-hot classes, zeros and ones, sequences of classes for CTC, or standard normal numbers in the
    shape of the output.

    Raises:
        ValueError: for a loss that is not from Keras or this package, or does not fit the labels, or is not finite.
    """
    loss = compile_arguments(model).get("loss") if model.compiled else None
    if loss is None:
        return None
    outputs = model(as_tensors(x), training=False)
    flat = keras.tree.flatten(outputs)
    if isinstance(loss, dict) and not isinstance(outputs, dict) and len(flat) > 1:  # in the order of the outputs
        loss = [loss[name] for name in model.output_names if name in loss]
    losses = keras.tree.flatten(loss) if isinstance(loss, (list, tuple, dict)) else [loss] * len(flat)
    rng = np.random.default_rng(seed + 1)
    if len(losses) != len(flat):
        raise refusal("The losses", f"be {len(flat)}, one for each output, or give labels (--data)", len(losses))
    labels = [_label(kind, tuple(output.shape), rng) for kind, output in zip(losses, flat, strict=True)]
    packed = keras.tree.pack_sequence_as(outputs, labels)
    try:
        value = model.compute_loss(x=x, y=as_tensors(packed), y_pred=outputs)
    except Exception as error:
        rule = "accept labels that were made for it. Pass your own: --data"
        raise refusal("The loss", rule, f"{type(error).__name__}: {error}") from error
    if any(not np.all(np.isfinite(ops.convert_to_numpy(output))) for output in flat):
        raise refusal("The model", "have finite outputs for random inputs. Pass your own: --data", "NaN or infinity")
    if not np.isfinite(float(ops.convert_to_numpy(value))):
        raise refusal("The loss", "be finite for random labels if no labels are given (--data)", float(value))
    return packed


def _label(loss: Any, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if "ctc" in str(getattr(loss, "__name__", None) or getattr(loss, "name", None) or loss).lower() and len(shape) == 3:
        return rng.integers(1, max(2, shape[-1]), size=(shape[0], max(1, shape[1] // 3))).astype("int32")  # 0 is masked
    form = "numbers" if loss is None else Criterion(loss).label_form(shape[-1])
    if form == "numbers":
        return rng.standard_normal(shape).astype("float32")
    if form == "each":
        return rng.integers(2, size=shape).astype("float32")
    if form not in ("integers", "either", "vectors"):
        rule = "be a Keras loss of classes or numbers, because its labels are generated. Otherwise pass data: --data"
        raise refusal("The loss", rule, f"loss={loss!r}")
    classes = rng.integers(shape[-1], size=shape[:-1]).astype("int32")
    return np.eye(shape[-1], dtype="float32")[classes] if form == "vectors" else classes
