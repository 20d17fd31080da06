"""Network of a configuration: backbone, head, L2, loss, metrics and optimizer."""

import keras
from keras import ops

from keras_het import covariances
from keras_het.integrators import MonteCarlo, QuasiMonteCarlo, Taylor
from keras_het.layers import HeteroscedasticDense

THRESHOLDS = 1 << 16  # of the gAP: most probabilities of 21,843 classes are tiny


def make_model(config, classes, steps, seed):
    """Returns a compiled model.

    classes: their number.
    steps: number of steps in an epoch, for the learning rate.
    seed: integer for the weights and the noise.
    """
    keras.utils.set_random_seed(seed)
    backbone, l2 = make_backbone(config), keras.regularizers.L2(config.l2)
    for variable in backbone.trainable_variables:
        if "kernel" in variable.name:
            variable.regularizer = l2
    outputs = backbone.outputs[0]
    if config.hidden:
        outputs = keras.layers.Dense(config.hidden, "relu", kernel_regularizer=l2)(outputs)
    model = keras.Model(backbone.inputs[0], make_head(config, classes, seed)(outputs))
    model.compile(make_optimizer(config, steps), nll_of(config), metrics=metrics_of(config, classes))
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
    backbone = getattr(keras.applications, config.backbone)
    return backbone(include_top=False, weights=None, input_shape=shape, pooling="avg")


def make_head(config, classes, seed):
    """Returns a heteroscedastic head, or a Dense layer."""
    l2 = keras.regularizers.L2(config.l2)
    if config.head == "dense":
        return keras.layers.Dense(classes, kernel_regularizer=l2)
    integrators = {"monte_carlo": MonteCarlo, "quasi_monte_carlo": QuasiMonteCarlo}
    return HeteroscedasticDense(
        classes,
        covariance=make_covariance(config, classes),
        link=config.link,
        temperature=config.temperature,
        integrator=Taylor() if config.sampling == "taylor" else integrators[config.sampling](config.samples),
        kernel_regularizer=l2,
        seed=seed,
    )


def make_covariance(config, classes):
    """Returns the covariance of the head, with a separate L2."""
    l2 = keras.regularizers.L2(config.covariance_l2)
    if config.head == "diagonal":
        return covariances.Diagonal(regularizer=l2)
    kinds = {"full": covariances.LowRank, "parameter-efficient": covariances.ParameterEfficient}
    return kinds[config.head](min(config.num_factors, classes), regularizer=l2)


def nll_of(config):
    """Returns the function for the negative log-likelihood of one class, or of sigmoids, summed over the classes."""
    if config.link == "softmax":
        return lambda y, logits: ops.categorical_crossentropy(y, logits, from_logits=True)
    return lambda y, logits: ops.sum(ops.binary_crossentropy(y, logits, from_logits=True), axis=-1)


def metrics_of(config, classes):
    """Returns the NLL, and top-1 and top-5 accuracy, or gAP if an image can have several classes."""
    nll = keras.metrics.MeanMetricWrapper(nll_of(config), name="nll")
    if config.multilabel:
        return [nll, keras.metrics.AUC(THRESHOLDS, "PR", from_logits=True, name="gap")]
    top5 = keras.metrics.TopKCategoricalAccuracy(min(5, classes), "top5")
    return [nll, keras.metrics.CategoricalAccuracy("top1"), top5]


def make_optimizer(config, steps):
    """Returns SGD with momentum, warm-up, drops of the learning rate, and clipping."""
    drops = [epoch * steps - 1 for epoch in config.drops]
    rates = [config.rate * 0.1**count for count in range(len(drops) + 1)]
    schedule = WarmUp(keras.optimizers.schedules.PiecewiseConstantDecay(drops, rates), config.warmup * steps)
    return keras.optimizers.SGD(schedule, config.momentum, global_clipnorm=config.clip)


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rates of another schedule that rise linearly in the first steps."""

    def __init__(self, schedule, steps):
        self.schedule, self.steps = schedule, steps

    def __call__(self, step):
        """Returns the rate of a step, a scalar tensor."""
        rise = ops.minimum((ops.cast(step, "float32") + 1.0) / max(self.steps, 1.0), 1.0)
        return self.schedule(step) * rise

    def get_config(self):
        return {"schedule": self.schedule, "steps": self.steps}
