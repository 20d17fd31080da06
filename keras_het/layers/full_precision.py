"""Layers that stay as they are when the model around them is quantised or gets LoRA weights."""

import keras


class FullPrecision(keras.layers.Layer):
    """Refuses `quantize` and `enable_lora`, which a config of the head could not bring back from a file.

    `model.quantize` warns, leaves such a layer as it is, and goes on with the others.
    """

    def quantize(self, mode=None, **kwargs):
        """Raises NotImplementedError."""
        raise NotImplementedError(
            f"The heteroscedastic head stays in full precision, for it lives on small differences that quantization would lose: "
            f"the layer {self.name!r} is not quantised. Received: mode={mode!r}"
        )

    def enable_lora(self, rank, **kwargs):
        """Raises NotImplementedError."""
        raise NotImplementedError(
            "LoRA is for the frozen kernels of a backbone (`backbone.enable_lora(rank)`); the heteroscedastic head trains in full. "
            f"Received: rank={rank!r} for the layer {self.name!r}"
        )


class AffineMap(FullPrecision, keras.layers.Dense):
    """A `Dense` layer inside a head, `(..., D)` to `(..., units)`."""
