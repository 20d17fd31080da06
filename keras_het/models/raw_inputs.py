"""Converted KerasHub tasks, which still accept raw images and strings, and are saved as presets.

KerasHub is optional, so the class is defined when it is needed. Until then `Loader` stands for it in files.
"""

import functools
import inspect
import sys
from typing import Any

import keras

from keras_het.base.graph import has_graph
from keras_het.base.refusal import refuse_if

NAME = "PreprocessingModel"
REGISTERED_NAME = f"keras_het>{NAME}"


class Loader:
    """A stand-in for `PreprocessingModel` in the table of Keras' custom objects.

    `BertTextClassifier.from_preset` accepts a preset if the class in its file is a `BertTextClassifier`. KerasHub asks
    `issubclass`, which reads `__bases__` of an object that is no class. A subclass would not do: KerasHub would load
    any preset of BERT as this subclass.
    """

    @property
    def __bases__(self) -> tuple[type, ...]:
        """Classifiers of KerasHub."""
        return _classifiers()

    def from_config(self, config: dict) -> keras.Model:
        """Makes a `PreprocessingModel` from its config."""
        return preprocessing_model().from_config(config)


keras.saving.get_custom_objects()[REGISTERED_NAME] = _LOADER = Loader()


def _classifiers() -> tuple[Any, ...]:
    import keras_hub

    general = (keras_hub.models.TextClassifier, keras_hub.models.ImageClassifier)
    kinds = keras.saving.get_custom_objects().values()
    return tuple(kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, general))


@functools.cache
def preprocessing_model() -> Any:
    """Returns the class of converted KerasHub tasks."""
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
            model = keras.saving.serialize_keras_object(keras.Model(self.input, self.output, name=self.name))
            layer = _find_backbone(model, self.backbone.name) if self.backbone else {}
            # KerasHub sets the dtype in the config of the backbone
            backbone = {"name": layer.get("name"), "config": layer.pop("config", None)}
            preprocessor = keras.saving.serialize_keras_object(self.preprocessor)
            return {"model": model, "backbone": backbone, "preprocessor": preprocessor}

        @classmethod
        def from_config(cls, config):
            other = next(iter(config.keys() - {"model", "backbone", "preprocessor"}), "")
            rule = "be left out: the head of the preset is converted. For other classes, convert the model with `units`"
            refuse_if(other, other, rule, value=config.get(other))
            if (backbone := config["backbone"])["name"]:
                _find_backbone(config["model"], backbone["name"])["config"] = backbone["config"]
            preprocessor = config["preprocessor"]
            if isinstance(preprocessor, dict):
                preprocessor = keras.saving.deserialize_keras_object(preprocessor)
            model = keras.saving.deserialize_keras_object(config["model"])
            return cls(model.input, model.output, preprocessor, name=model.name)

        def export(self, *arguments, **named):
            """Exports without the preprocessor: the file expects preprocessed inputs."""
            model = keras.Model(self.input, self.output, name=self.name)
            model(self.input)  # some formats need a model that was called
            return model.export(*arguments, **named)

        def save_to_preset(self, preset_dir, max_shard_size=10):
            if not any(kind.backbone_cls is type(self.backbone) for kind in _classifiers()):
                raise NotImplementedError(
                    "KerasHub loads a preset as a TextClassifier or ImageClassifier of its backbone, which this model "
                    'lacks. Save a file: `model.save("model.keras")`. To load it, `import keras_het`, then '
                    f'`keras.saving.load_model("model.keras")`. Received: preset_dir={preset_dir!r}'
                )
            super().save_to_preset(preset_dir, max_shard_size)

    keras.saving.get_custom_objects()[REGISTERED_NAME] = _LOADER  # `register_keras_serializable` replaced it
    return PreprocessingModel


def _find_backbone(model: dict, name: str) -> dict:
    return next(layer for layer in model["config"]["layers"] if layer["name"] == name)


def keep_task(new: keras.Model, old: keras.Model) -> keras.Model:
    """Returns the new model, as a KerasHub task with the preprocessor of the old model if this is a task."""
    hub = sys.modules.get("keras_hub")  # if None, `old` is not a task
    if hub is None or not isinstance(old, hub.models.Task):
        return new
    return preprocessing_model()(new.input, new.output, old.preprocessor, name=new.name)


def keep_class(new: keras.Model, old: keras.Model) -> keras.Model:
    """Returns the new model with a dict output as before, in the old class if its constructor is Keras' own."""
    kind: Any = type(old)
    if kind is keras.Sequential or not has_graph(old):
        return new
    if isinstance(output := getattr(old, "output", None), dict):
        new = keras.Model(new.input, dict.fromkeys(output, new.output), name=new.name)
    if kind.__init__ is keras.Sequential.__init__:
        return kind(new.layers, name=new.name)
    if kind.__init__ is type(new).__init__:
        return kind(new.input, new.output, name=new.name)
    return keep_task(new, old)
