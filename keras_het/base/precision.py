"""Layers that compute in the precision they were made with, whatever is done to the model around them."""

import warnings

import keras
from keras import ops

from keras_het.base.eager import constant
from keras_het.base.internals import has_hooks, is_plain
from keras_het.base.refusal import refusal, refuse_if


class FullPrecision(keras.layers.Layer):
    """Refuses `quantize` and `enable_lora`: a config of the head could not restore them from a file.

    `model.quantize` warns, leaves such a layer as it is, and goes on with the others.
    """

    def quantize(self, mode=None, **kwargs):
        """Raises NotImplementedError."""
        raise NotImplementedError(
            "The heteroscedastic head stays in full precision: quantization would destroy the small differences it "
            f"depends on: the layer {self.name!r} is not quantised. Received: mode={mode!r}"
        )

    def enable_lora(self, rank, **kwargs):
        """Raises NotImplementedError."""
        raise NotImplementedError(
            "LoRA is for the frozen kernels of a backbone (`backbone.enable_lora(rank)`); the heteroscedastic head "
            f"trains in full. Received: rank={rank!r} for the layer {self.name!r}"
        )


class AffineMap(FullPrecision, keras.layers.Dense):
    """A `Dense` layer inside a head, `(..., D)` to `(..., units)`; its call can also return the kernel.

    The kernel comes from the call: outside the call, a layer around the head may make Keras round it to that layer's
    precision.
    """

    def __call__(self, inputs, **options):
        # Keras prepares a call for longer than the product of a small step takes. The head has prepared its own; in a
        # layer of another precision, where someone reads the distribution of the head, the kernel has another dtype.
        if not options and is_plain(inputs) and self.built and not has_hooks(self):
            kernel = self.kernel.value
            if kernel.dtype == inputs.dtype:
                return inputs @ kernel if self.bias is None else inputs @ kernel + self.bias.value
        return super().__call__(inputs, **options)

    def call(self, inputs, training=None, with_kernel=False):
        outputs = super().call(inputs, training=training)
        # Without the reshape TensorFlow gives the variable itself, which a custom gradient refuses.
        return (outputs, ops.reshape(self.kernel, self.kernel.shape)) if with_kernel else outputs


def check_dtype(dtype):
    """Returns the policy of a dtype, if this backend computes in it.

    Half precision would lose the small differences that the noise depends on.
    """
    policy = keras.dtype_policies.get("float32" if dtype is None else dtype)
    plain = policy.quantization_mode is None and policy.variable_dtype == policy.compute_dtype
    rule = 'be "float32" or "float64"; the layer takes inputs of any precision and computes in its own'
    refuse_if(not plain or policy.compute_dtype not in ("float32", "float64"), "dtype", rule, value=policy.name)
    if policy.compute_dtype == "float64" and not _computes_in_float64():
        rule = f'be "float32" on the backend {keras.config.backend()!r}, where not every operation is float64'
        raise refusal("dtype", rule, value=policy.name)
    return policy


def check_autocast(dtype, beside):
    """Refuses `torch.autocast`, whose matrix products are in half precision whatever the dtype of the weights."""
    if keras.config.backend() != "torch":
        return
    probe = constant(_zero, dtype, beside=beside)
    found = str((probe @ probe).dtype)  # `ops.matmul` would hide the rounding: it casts the product back
    if dtype not in found:
        rule = (
            "be called outside `torch.autocast`: call it under `torch.autocast(device, enabled=False)`, or give "
            'the layers before it the dtype policy "mixed_bfloat16"'
        )
        raise refusal(f"The layer computes in {dtype} and", rule, f"matrix products in {found}")


def _zero(dtype, xp):
    return xp.zeros((1, 1), dtype=dtype)


def _computes_in_float64():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX would warn that it gives float32, which is the answer wanted here
        probe = ops.ones((1, 1), dtype="float64")
        return "float64" in str(ops.matmul(probe, probe).dtype) and "float64" in str(ops.logaddexp(probe, probe).dtype)
