"""Layers that keep their precision, whatever happens to the model around them."""

import warnings

import keras
from keras import ops

from keras_het.base.eager import constant, numbers
from keras_het.base.internals import has_hooks, is_plain
from keras_het.base.refusal import refusal, refuse_if


class FullPrecision(keras.layers.Layer):
    """Base class of layers that refuse `quantize` and `enable_lora`, which no config could restore from a file.

    `model.quantize` warns, skips such a layer, and goes on with the other layers.
    """

    def quantize(self, mode=None, **kwargs):
        raise NotImplementedError(
            f"The layer {self.name!r} of a heteroscedastic head is not quantised: quantisation would destroy the small "
            f"differences it depends on. Received: mode={mode!r}"
        )

    def enable_lora(self, rank, **kwargs):
        raise NotImplementedError(
            f"The layer {self.name!r} of a heteroscedastic head has no LoRA: call `backbone.enable_lora(rank)` "
            f"instead. Received: rank={rank!r}"
        )


class AffineMap(FullPrecision, keras.layers.Dense):
    """`Dense` layer inside a head with outputs multiplied by a constant, multiplier (x kernel + bias).

    Its call can also return the kernel. Outside the call, Keras might round the kernel to the precision of a layer
    around the head. With Adam, the outputs learn at the learning rate times `multiplier`, which is greater than 0.
    Source: Karras et al., Analyzing and improving the image quality of StyleGAN, CVPR 2020, whose code calls it the
        learning-rate multiplier of a layer.
    """

    def __init__(self, units, multiplier=1.0, **kwargs):
        super().__init__(units, **kwargs)
        self.multiplier = multiplier

    def __call__(self, inputs, **options):
        # Keras' preparation of a call takes longer than the product of a small step, and the head has done it already.
        # In a layer of another precision, the kernel has another dtype than the inputs.
        if not options and is_plain(inputs) and self.built and not has_hooks(self):
            kernel = self.kernel.value
            if kernel.dtype == inputs.dtype:
                inputs, bias = self._scale(inputs, None if self.bias is None else self.bias.value)
                return inputs @ kernel if bias is None else inputs @ kernel + bias
        return super().__call__(inputs, **options)

    def call(self, inputs, training=None, with_kernel=False):
        inputs, bias = self._scale(inputs, self.bias)
        outputs = ops.matmul(inputs, self.kernel)
        outputs = outputs if bias is None else ops.add(outputs, bias)
        return (outputs, ops.convert_to_tensor(self.kernel)) if with_kernel else outputs

    def _scale(self, inputs, bias):
        """Multiplies the inputs and the bias, which are smaller than the outputs."""
        if self.multiplier == 1.0:
            return inputs, bias
        (multiplier,) = numbers(self.multiplier, beside=inputs)
        return multiplier * inputs, None if bias is None else multiplier * bias


def check_dtype(dtype):
    """Checks that a dtype has full precision, for the small noise, and that the backend has it; returns its policy."""
    policy = keras.dtype_policies.get("float32" if dtype is None else dtype)
    is_uniform = policy.quantization_mode is None and policy.variable_dtype == policy.compute_dtype
    rule = 'be "float32" or "float64"; inputs can have any precision'
    refuse_if(not is_uniform or policy.compute_dtype not in ("float32", "float64"), "dtype", rule, value=policy.name)
    if policy.compute_dtype == "float64" and not _computes_in_float64():
        rule = f'be "float32" on the backend {keras.config.backend()!r}, which lacks float64 for some operations'
        raise refusal("dtype", rule, value=policy.name)
    return policy


def check_autocast(dtype, beside):
    """Raises ValueError under `torch.autocast`, which computes matrix products in half precision for any weights."""
    if keras.config.backend() != "torch":
        return
    probe = constant(_zero, dtype, beside=beside)
    product_dtype = str((probe @ probe).dtype)  # `ops.matmul` would hide the rounding: it casts the product back
    if dtype not in product_dtype:
        rule = (
            "be called outside `torch.autocast`: call it under `torch.autocast(device, enabled=False)`, or use the "
            'dtype policy "mixed_bfloat16" for the layers before it'
        )
        raise refusal(f"The layer computes in {dtype} and", rule, f"matrix products in {product_dtype}")


def _zero(dtype, xp):
    return xp.zeros((1, 1), dtype=dtype)


def _computes_in_float64():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX would warn that it uses float32, which is what this function tests
        probe = ops.ones((1, 1), dtype="float64")
        return "float64" in str(ops.matmul(probe, probe).dtype) and "float64" in str(ops.logaddexp(probe, probe).dtype)
