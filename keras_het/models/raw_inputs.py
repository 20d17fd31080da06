"""Converted KerasHub tasks go on taking raw images and strings: models that keep a task's preprocessor.

KerasHub is optional, and its classes can be derived from only where it is installed. So the class is made when it is
needed, and under the name that files know stands a `Loader` until then.
"""

import functools
import sys
from typing import Any

import keras

NAME = "PreprocessingModel"


class Loader:
    """What a `.keras` file of such a model finds when it is loaded where none was made before."""

    @classmethod
    def from_config(cls, config: dict) -> keras.Model:
        """The model of a config of the class below."""
        return preprocessing_model().from_config(config)


keras.saving.get_custom_objects()[f"keras_het>{NAME}"] = Loader


@functools.cache
def preprocessing_model() -> Any:
    """The class of functional models with a preprocessor.

    It derives from the general `Task`, not from one for images or texts: among the subclasses of those KerasHub looks
    for the class that a preset is loaded as, and must not find this one.
    """
    import keras_hub

    @keras.saving.register_keras_serializable("keras_het", NAME)
    class PreprocessingModel(keras_hub.models.Task):
        """A functional model whose `fit`, `evaluate` and `predict` take what its preprocessor takes."""

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
            """Without the preprocessor: the file takes what that makes."""
            model = keras.Model(self.input, self.output, name=self.name)
            model(self.input)  # some formats want a model that was called
            return model.export(*arguments, **named)

        def save_to_preset(self, preset_dir, max_shard_size=10):
            raise NotImplementedError(
                "A preset is loaded with a plain head: save the model by `model.save(...)`, as a `.keras` file. "
                f"Received: preset_dir={preset_dir!r}"
            )

    return PreprocessingModel


def with_preprocessor(new: keras.Model, old: keras.Model) -> keras.Model:
    """The new model, with the preprocessor of the old one if that is a KerasHub task that has one."""
    hub = sys.modules.get("keras_hub")  # not imported: no task
    if hub is None or not isinstance(old, hub.models.Task) or old.preprocessor is None:
        return new
    return preprocessing_model()(new.input, new.output, old.preprocessor, name=new.name)
