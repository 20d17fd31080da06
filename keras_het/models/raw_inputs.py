"""Models with the preprocessor of a KerasHub task, which still accept raw images and strings after conversion.

KerasHub is optional, so the class is defined when it is needed. Until then `Loader` stands for it in `.keras` files.
"""

import functools
import sys
from typing import Any

import keras

NAME = "PreprocessingModel"


class Loader:
    """A stand-in for `PreprocessingModel`, for `.keras` files that are loaded before the class is defined."""

    @classmethod
    def from_config(cls, config: dict) -> keras.Model:
        """Makes a `PreprocessingModel` from its config."""
        return preprocessing_model().from_config(config)


keras.saving.get_custom_objects()[f"keras_het>{NAME}"] = Loader


@functools.cache
def preprocessing_model() -> Any:
    """Returns the class of functional models with a preprocessor.

    The base class is the general `Task`, because KerasHub searches the subclasses of tasks for images and texts for the
    class of a preset.
    """
    import keras_hub

    @keras.saving.register_keras_serializable("keras_het", NAME)
    class PreprocessingModel(keras_hub.models.Task):
        """A functional model whose `fit`, `evaluate` and `predict` accept the raw inputs of its preprocessor."""

        def __init__(self, inputs, outputs, preprocessor, name=None):
            backbones = [
                layer for layer in keras.Model(inputs, outputs).layers if isinstance(layer, keras_hub.models.Backbone)
            ]
            self.backbone = backbones[0] if backbones else None
            self.preprocessor = preprocessor
            super().__init__(inputs=inputs, outputs=outputs, name=name, compile=False)

        def get_config(self):
            model = keras.Model(self.input, self.output, name=self.name)
            parts = {"model": model, "preprocessor": self.preprocessor}
            return {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}

        @classmethod
        def from_config(cls, config):
            model, preprocessor = (
                keras.saving.deserialize_keras_object(config[name]) for name in ("model", "preprocessor")
            )
            return cls(model.input, model.output, preprocessor, name=model.name)

        def export(self, *arguments, **named):
            """Exports without the preprocessor: the file expects preprocessed inputs."""
            model = keras.Model(self.input, self.output, name=self.name)
            model(self.input)  # some formats need a model that was called
            return model.export(*arguments, **named)

        def save_to_preset(self, preset_dir, max_shard_size=10):
            raise NotImplementedError(
                "A preset would load with a plain head. Use `model.save(...)` with a `.keras` file instead. "
                f"Received: preset_dir={preset_dir!r}"
            )

    return PreprocessingModel


def add_preprocessor(new: keras.Model, old: keras.Model) -> keras.Model:
    """Returns the new model, with the preprocessor of the old model if it is a KerasHub task with a preprocessor."""
    hub = sys.modules.get("keras_hub")  # if None, `old` is not a task
    if hub is None or not isinstance(old, hub.models.Task) or old.preprocessor is None:
        return new
    return preprocessing_model()(new.input, new.output, old.preprocessor, name=new.name)
