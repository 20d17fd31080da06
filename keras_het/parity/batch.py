"""Batches: names of their arrays, and a random batch that fits the inputs and the loss of a model."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_het.base.graph import symbolic_inputs
from keras_het.base.internals import compile_arguments, layers_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.criteria.criterion import Criterion
from keras_het.parity.probe import as_tensors, flatten_outputs, intercept_calls, preserve_values, to_numpy

EXAMPLES, SEED = 4, 2021
UNKNOWN_LENGTH = 32


def pack(x: Any, y: Any = None, sample_weight: Any = None, second: Any = None) -> dict[str, Any]:
    """Returns the arrays of one or two batches by name.

    The name is "x" for one array, "x:0" for the first of a list, and "x.tokens" for an entry of a dict. In the second
    batch it begins with "second".
    """
    second_x, second_y = second or (None, None)
    data = {"x": x, "y": y, "sample_weight": sample_weight, "second x": second_x, "second y": second_y}
    arrays: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            arrays |= {f"{name}.{key}": each for key, each in value.items()}
        elif isinstance(value, (list, tuple)) and all(hasattr(each, "shape") for each in value):
            arrays |= {f"{name}:{number}": each for number, each in enumerate(value)}
        elif value is not None:
            arrays[name] = value
    return {name: np.asarray(array) for name, array in arrays.items()}


def unpack(arrays: dict[str, np.ndarray]) -> tuple[tuple, tuple | None]:
    """Returns `(x, y, sample_weight)`, and the second batch or None, from the arrays that `pack` named."""

    def find(name: str) -> Any:
        keyed = {key.removeprefix(f"{name}."): value for key, value in arrays.items() if key.startswith(f"{name}.")}
        numbered = [value for key, value in arrays.items() if key.startswith(f"{name}:")]
        return arrays.get(name, keyed or numbered or None)

    x, y, sample_weight, *second = map(find, ("x", "y", "sample_weight", "second x", "second y"))
    return (x, y, sample_weight), None if second[0] is None else tuple(second)


def make_batch(model: Any) -> tuple[dict[str, Any], list[str]]:
    """Returns the arrays of two batches with the same labels, and notes on what the second batch lacks."""

    def gives_nan(inputs: Any) -> bool:
        with contextlib.suppress(Exception), preserve_values(model.variables):  # the recording says what fails
            return not _are_finite(model(as_tensors(inputs), training=False))
        return False

    x, notes = make_inputs(model), []
    y, second, shorter = make_labels(model, x), *(make_inputs(model, is_second=True, padded=n) for n in (True, False))
    if [*map(gives_nan, (second, shorter))] == [True, False]:  # as the mean of the tokens that a mask keeps
        second = shorter
        notes.append("the model returns NaN for a row of padding alone, so the second batch has no such row")
    return pack(x, y, second=(second, y)), notes


def _are_finite(outputs: Any) -> bool:
    return all(np.all(np.isfinite(to_numpy(output))) for output in flatten_outputs(outputs))


def make_inputs(model: Any, *, is_second: bool = False, padded: bool = True) -> Any:
    """Returns inputs for a model, in the structure that it accepts.

    Floats are standard normal, and integers are 0 or 1. If an input reaches an Embedding or CategoryEncoding, it has
    integers in its range. An input of integers or booleans with "mask" in its name ends in zeros. An axis of unknown
    length has 32 entries, or as many as the positions that an embedding of positions has.

    The second batch reaches what random numbers do not. Floats have a row of zeros, one of rounded numbers with ties,
    one of negative numbers, and one in which every seventeenth is beyond 10. Tokens have padding at the end or at the
    start, a row of the largest index and, if `padded`, one of padding alone.
    """
    try:
        inputs = symbolic_inputs(model)
    except ValueError as error:
        rule = "know the shapes of its inputs if no data are given (--data)"
        raise refusal("The model", rule, kind=model) from error
    embeddings = [layer for layer in layers_of(model) if hasattr(layer, "position_embeddings")]
    positions = [getattr(layer, "sequence_length", None) for layer in embeddings]
    length = min([UNKNOWN_LENGTH, *(int(each) for each in positions if each)])

    def with_lengths(tensor: Any) -> Any:
        shape = (tensor.shape[0] or EXAMPLES, *(length if axis is None else axis for axis in tensor.shape[1:]))
        return keras.Input(batch_shape=shape, dtype=tensor.dtype, name=tensor.name)

    inputs = keras.tree.map_structure(with_lengths, inputs)
    rng, arrays = np.random.default_rng(SEED), []
    for tensor, size in zip(keras.tree.flatten(inputs), _embedding_sizes(model, inputs), strict=True):
        is_integer = "int" in tensor.dtype or tensor.dtype == "bool"
        make = _make_integers if is_integer or size is not None else _make_floats
        if make == _make_integers and "mask" in tensor.name and len(tensor.shape) > 1:
            make = _make_mask
        dtype = tensor.dtype if is_integer or tensor.dtype == "float64" else "float32"
        arrays.append(make(tuple(tensor.shape), size or 2, rng, is_second).astype(dtype))
        if is_second and padded and make == _make_integers:
            arrays[-1][1::EXAMPLES] = 0
    return keras.tree.pack_sequence_as(inputs, arrays)


def _make_floats(shape: tuple[int, ...], size: int, rng: np.random.Generator, is_second: bool) -> np.ndarray:
    array = rng.standard_normal(shape)
    for number, row in enumerate(array if is_second else ()):  # a large row would be all that a normalization sees
        spikes = np.where(np.arange(row.size).reshape(row.shape) % 17, row, np.copysign(10.0, row) + row)
        array[number] = (0.0 * row, np.round(row), -np.abs(row), spikes)[number % EXAMPLES]
    return array


def _make_integers(shape: tuple[int, ...], size: int, rng: np.random.Generator, is_second: bool) -> np.ndarray:
    array = rng.integers(size, size=shape)
    if is_second:
        array[1::EXAMPLES], array[2::EXAMPLES] = min(1, size - 1), size - 1
    if is_second and len(shape) > 1:
        is_last, half = np.arange(shape[0]) % EXAMPLES == EXAMPLES - 1, shape[1] // 2
        array[is_last, :half] = 0
        array[~is_last, shape[1] - half :] = 0
    return array


def _make_mask(shape: tuple[int, ...], size: int, rng: np.random.Generator, is_second: bool) -> np.ndarray:
    lengths = shape[1] - np.arange(shape[0]) % max(1, shape[1] // 2)
    lengths = np.full(shape[0], (shape[1] + 1) // 2) if is_second else lengths
    is_kept = np.arange(shape[1]) < lengths[:, None]
    return np.broadcast_to(is_kept.reshape(*is_kept.shape, *[1] * (len(shape) - 2)), shape)


def _embedding_sizes(model: Any, inputs: Any) -> list[int | None]:
    """Returns for each input the rows of the smallest Embedding or CategoryEncoding that it reaches, or None.

    An input reaches a layer if the inputs of the layer change when the input is one instead of zero. Floats that are
    sorted into bins first are no indices.
    """
    flat = keras.tree.flatten(inputs)
    runs: list[dict[Any, np.ndarray]] = []

    def watch(layer: Any, call: Callable, arguments: tuple, options: dict) -> Any:
        is_table = hasattr(layer, "input_dim") and hasattr(layer, "embeddings")
        if is_table or isinstance(layer, keras.layers.CategoryEncoding):
            runs[-1].setdefault(layer, to_numpy([*arguments, *options.values()][0]))
        return call(*arguments, **options)

    with intercept_calls(model, watch):
        for index_of_ones in range(-1, len(flat)):
            arrays = [np.full(tuple(x.shape), float(i == index_of_ones), x.dtype) for i, x in enumerate(flat)]
            runs.append({})
            model(keras.tree.pack_sequence_as(inputs, as_tensors(arrays)), training=False)
            if not runs[-1]:
                return [None] * len(flat)
    zeros, *others = runs
    sizes = []
    for tensor, ones in zip(flat, others, strict=True):
        reached = [layer for layer in zeros if not np.array_equal(ones[layer], zeros[layer])]
        if "float" in tensor.dtype:
            reached = [layer for layer in reached if not zeros[layer].any() and np.isin(ones[layer], (0, 1)).all()]
        sizes.append(min((getattr(layer, "input_dim", None) or layer.num_tokens for layer in reached), default=None))
    return sizes


def make_labels(model: Any, x: Any) -> Any:
    """Returns labels that fit the losses of a compiled model, or None if the model has no loss.

    Raises a ValueError for a loss that is not from Keras or this package, or does not fit the labels, or is not finite.
    """
    loss = compile_arguments(model).get("loss") if model.compiled else None
    if loss is None:
        return None
    outputs, rng = model(as_tensors(x), training=False), np.random.default_rng(SEED + 1)
    flat = keras.tree.flatten(outputs)
    if isinstance(loss, dict) and not isinstance(outputs, dict) and len(flat) > 1:  # in the order of the outputs
        loss = [loss[name] for name in model.output_names if name in loss]
    losses = keras.tree.flatten(loss) if isinstance(loss, (list, tuple, dict)) else [loss] * len(flat)
    rule = f"be {len(flat)}, one for each output, or give labels (--data)"
    refuse_if(len(losses) != len(flat), "The losses", rule, len(losses))
    labels = [_label(kind, tuple(output.shape), rng) for kind, output in zip(losses, flat, strict=True)]
    packed = keras.tree.pack_sequence_as(outputs, labels)
    rule = "have finite outputs for random inputs. Pass your own: --data"
    refuse_if(not _are_finite(outputs), "The model", rule, "NaN or infinity")
    try:
        value = to_numpy(model.compute_loss(x=x, y=as_tensors(packed), y_pred=outputs))
    except Exception as error:
        rule = "accept labels that were made for it. Pass your own: --data"
        raise refusal("The loss", rule, f"{type(error).__name__}: {error}") from error
    rule = "be finite for random labels if no labels are given (--data)"
    refuse_if(not np.isfinite(value), "The loss", rule, value)
    return packed


def _label(loss: Any, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if "ctc" in str(getattr(loss, "__name__", None) or getattr(loss, "name", None) or loss).lower() and len(shape) == 3:
        return rng.integers(1, max(2, shape[-1]), size=(shape[0], max(1, shape[1] // 3))).astype("int32")  # 0 is masked
    form = "numbers" if loss is None else Criterion(loss).label_form(shape[-1])
    rule = "be a Keras loss of classes or numbers, because its labels are generated. Otherwise pass data: --data"
    refuse_if(form not in ("numbers", "each", "integers", "either", "vectors"), "The loss", rule, f"loss={loss!r}")
    if form == "numbers":
        return rng.standard_normal(shape).astype("float32")
    if form == "each":
        return rng.integers(2, size=shape).astype("float32")
    classes = rng.integers(shape[-1], size=shape[:-1]).astype("int32")
    return np.eye(shape[-1], dtype="float32")[classes] if form == "vectors" else classes
