"""Network of a configuration: backbone, head, L2, loss and optimizer."""

import keras
from keras import ops

from keras_het import covariances
from keras_het.integrators import ClosedForm, MonteCarlo, QuasiMonteCarlo, Taylor
from keras_het.layers import HeteroscedasticDense


def make_model(config, classes, steps, seed):
    """Returns a compiled model.

    classes: their number.
    steps: number of steps in an epoch, for the learning rate.
    seed: integer for the weights and the noise.
    """
    keras.utils.set_random_seed(seed)
    backbone = make_backbone(config)
    check_backbone(backbone, config)
    penalise(backbone, config.l2)
    outputs = backbone.outputs[0]
    if config.hidden:
        outputs = keras.layers.Dense(config.hidden, "relu", kernel_regularizer=keras.regularizers.L2(config.l2))(
            outputs
        )
    for layer in head_layers(config, classes, seed):
        outputs = layer(outputs)
    model = keras.Model(backbone.inputs[0], outputs)
    model.compile(make_optimizer(config, steps), loss_of(config))
    return model


def make_backbone(config):
    """Returns a model that returns the features, with fresh weights."""
    shape = (config.size, config.size, 3)
    if config.backbone == "tiny":
        return keras.Sequential(
            [
                keras.Input(shape),
                keras.layers.Conv2D(8, 3, strides=2, use_bias=False),
                keras.layers.BatchNormalization(),
                keras.layers.ReLU(),
                keras.layers.GlobalAveragePooling2D(),
            ]
        )
    return getattr(keras.applications, config.backbone)(
        include_top=False, weights=None, input_shape=shape, pooling="avg"
    )


def check_backbone(backbone, config):
    """Raises ValueError for layers with random states, which no file of weights contains."""
    random = [
        layer.name
        for layer in backbone.layers
        if any(isinstance(value, keras.random.SeedGenerator) for value in vars(layer).values())
    ]
    if random:
        rule = f"have no random layers, such as {random[0]}: a training could not go on as it would have"
        raise ValueError(f"`backbone` must {rule}. Received: backbone={config.backbone!r}")


def penalise(model, l2):
    """Adds an L2 to every kernel of a model."""
    for variable in model.trainable_variables:
        if "kernel" in variable.name:
            variable.regularizer = keras.regularizers.L2(l2)


def head_layers(config, classes, seed):
    """Returns a heteroscedastic head, or a Dense layer and its logits divided by the temperature."""
    l2 = keras.regularizers.L2(config.l2)
    if config.head == "dense":
        scale = [keras.layers.Rescaling(1 / config.temperature)] if config.temperature != 1.0 else []
        return [keras.layers.Dense(classes, kernel_regularizer=l2), *scale]
    return [
        HeteroscedasticDense(
            classes,
            covariance=covariance_of(config, classes),
            link=config.link,
            temperature=config.temperature,
            integrator=integrator_of(config),
            kernel_regularizer=l2,
            seed=seed,
        )
    ]


def covariance_of(config, classes):
    """Returns the covariance of the head, with a separate L2."""
    l2 = keras.regularizers.L2(config.covariance_l2)
    if config.head == "diagonal":
        return covariances.Diagonal(regularizer=l2)
    kind = covariances.ParameterEfficient if config.head == "parameter-efficient" else covariances.LowRank
    return kind(min(config.num_factors, classes), regularizer=l2)


def integrator_of(config):
    return {
        "monte_carlo": lambda: MonteCarlo(config.samples),
        "quasi_monte_carlo": lambda: QuasiMonteCarlo(config.samples),
        "closed_form": ClosedForm,
        "taylor": Taylor,
    }[config.sampling]()


def loss_of(config):
    """Returns the negative log-likelihood of one class, or of sigmoids, summed over the classes."""
    if config.link == "softmax":
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return lambda targets, logits: ops.sum(ops.binary_crossentropy(targets, logits, from_logits=True), axis=-1)


def make_optimizer(config, steps):
    """Returns SGD with momentum, warm-up, drops of the learning rate, and clipping."""
    warmup = config.warmup_steps or config.warmup_epochs * steps
    schedule = WarmupAndDrops(config.rate, warmup, [epoch * steps for epoch in config.drops])
    return keras.optimizers.SGD(schedule, config.momentum, global_clipnorm=config.clip or None)


class WarmupAndDrops(keras.optimizers.schedules.LearningRateSchedule):
    """Rate that rises linearly to `rate` in the first steps, and is divided by ten at each drop.

    Example: at rate .1, warm-up 4 and drops (8,), steps 0, 1, 3, 7 and 8 have .025, .05, .1, .1 and .01.
    """

    def __init__(self, rate, warmup, drops):
        self.rate, self.warmup, self.drops = rate, warmup, list(drops)

    def __call__(self, step):
        """Returns the rate of a step, a scalar tensor."""
        step = ops.cast(step, "float32")
        rise = ops.minimum((step + 1.0) / max(self.warmup, 1.0), 1.0)
        passed = sum(ops.cast(step >= drop, "float32") for drop in self.drops)
        return self.rate * rise * 0.1**passed

    def get_config(self):
        return {"rate": self.rate, "warmup": self.warmup, "drops": self.drops}
