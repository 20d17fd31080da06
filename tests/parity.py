"""Parity: the same weights, seeds and data on several backends.

Noise, outputs, gradients and a training run are written and compared:

    KERAS_BACKEND=jax python -m tests.parity write jax.npz           (once per backend)
    python -m tests.parity compare jax.npz tensorflow.npz torch.npz  (prints a table, fails above a limit)

Models compile as Keras does by default, and with `write --jit FILE` by XLA or TorchInductor. A file is a `Recording`
with parts "kind: case". The limits are fixed, while the limits of `keras_het.parity.compare` grow with rounding.
"""

import collections
import itertools
import sys

import numpy as np

from keras_het.base.serializable import resolve
from keras_het.parity import Comparison, Recording
from keras_het.parity.arrays import Row
from keras_het.parity.judge import list_versions

UNITS, NUM_FACTORS, FEATURES, BATCH, NUM_SAMPLES, JOINT_SAMPLES, SEED = 20, 4, 12, 16, 100, 20, 2021
FIT_STEPS, FIT_BATCHES, MAX_LOGIT = 50, 10, 100.0
LEARNING_RATES = {"sigmoid": 0.5 * UNITS, "normal": 2.0}  # the first is a mean over the units; 0.5 for the others
HEADS = {
    "full": {"num_factors": NUM_FACTORS},
    "parameter-efficient": {"num_factors": NUM_FACTORS, "parameter_efficient": True},
    "diagonal": {"num_factors": 0},
}
NARROW, WIDTH = "narrow", 3  # all that it has of its own are two maps
NODES = {"num_samples": NUM_SAMPLES}
LINKS = {  # name of a case, which begins with the link: integrator
    "softmax": ("QuasiMonteCarlo", NODES),
    "softmax antithetic": ("MonteCarlo", {**NODES, "antithetic": True}),
    "softmax Taylor": ("Taylor", {}),
    "sigmoid": ("ClosedForm", {}),
    "sigmoid MonteCarlo": ("MonteCarlo", NODES),
}
JOINT = {"joint labels": 0.1, "joint pixels": 0.05, "joint targets": 0.01}  # heads of a distribution: learning rates
# Parts of a recording of `keras_het.parity`, and the kinds whose limits they have.
KINDS = {"layers": "outputs", "predictions": "outputs", "loss": "outputs", "gradients": "gradients", "training": "fit"}
# A link and a covariance are separate code, so each is in one case, and two trainings have most of both.
FITTED = [("full", "softmax"), ("parameter-efficient", "sigmoid MonteCarlo")]
OTHERS = [("full", link) for link in LINKS if link not in dict(FITTED).values()]
CASES = [*FITTED, *OTHERS, ("diagonal", "softmax"), (NARROW, "softmax")]


def absolute(a, b):
    """Returns the largest |a - b|."""
    return np.max(np.abs(a - b), initial=0.0)


def bits(a, b):
    """Returns how many entries differ in their bits."""
    return np.sum(a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}"))


def mixed(a, b):
    """Returns a measure that is at most 1e-5 for rtol 1e-5 + atol 1e-5."""
    return np.max(np.abs(a - b) / (1 + np.minimum(np.abs(a), np.abs(b))), initial=0.0)


def relative(a, b):
    scale = min(np.max(np.abs(x), initial=0.0) for x in (a, b))
    return absolute(a, b) / max(scale, np.finfo("float32").tiny)


LIMITS = {  # kind: measure, limit, what the table says of it
    "noise": (bits, 0.0, "entries with other bits, eager and compiled"),
    "outputs": (mixed, 1e-5, "|a - b| / (1 + the smaller of |a| and |b|), so rtol 1e-5 + atol 1e-5"),
    "gradients": (relative, 1e-4, "|a - b| / max |gradient of that weight|, on every trainable weight"),
    "fit": (absolute, 1e-4, f"|a - b| on every weight after each of {FIT_STEPS} training steps"),  # by SGD or Adam
}


def difference(kind, a, b):
    """Returns the kind's measure; infinite if an array is missing, not finite, or of another shape or dtype."""
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        return np.inf
    if kind != "noise":
        a, b = a.astype("float64"), b.astype("float64")
    return float(LIMITS[kind][0](a, b))


def kind_of(part):
    return part.split(":")[0]


def compare(*recordings):
    """Returns the comparison of recordings by LIMITS. A kind that no recording has is a failure."""
    names = dict.fromkeys((part, name) for r in recordings for part, arrays in r.arrays.items() for name in arrays)
    rows = []
    for (part, name), pair in itertools.product(names, itertools.combinations(recordings, 2)):
        arrays = [recording.arrays.get(part, {}).get(name) for recording in pair]
        limit = LIMITS[kind_of(part)][1]
        rows.append(Row(part, name, *(r.label for r in pair), difference(kind_of(part), *arrays), limit))
    missing = [f"no {kind} in any recording" for kind in LIMITS if kind not in {kind_of(row.part) for row in rows}]
    return Comparison([r.label for r in recordings], rows, [], missing, list_versions(recordings))


def table(comparison):
    """Returns the largest difference of each kind between two backends, as lists of texts."""
    pairs = list(dict.fromkeys((row.first, row.second) for row in comparison.rows))
    lines = [["number", *(" - ".join(pair) for pair in pairs), "limit"]]
    for kind, (_, limit, _) in LIMITS.items():
        rows = [row for row in comparison.rows if kind_of(row.part) == kind]
        of_pairs = ([row.difference for row in rows if (row.first, row.second) == pair] for pair in pairs)
        largest = [max(each, default=np.inf) for each in of_pairs]
        lines.append([kind, *(f"{x:.0f}" if limit == 0 else f"{x:.1e}" for x in largest), f"{limit:g}"])
    return lines


def make_head(kind, link):
    """Returns a built head with fixed NumPy weights and step counter."""
    from keras_het import covariances, integrators, layers

    rule, arguments = LINKS[link]
    own = {"covariance": covariances.Narrow(NUM_FACTORS, WIDTH)} if kind == NARROW else HEADS[kind]
    own = {**own, "link": link.split()[0], "integrator": getattr(integrators, rule)(**arguments)}
    head = layers.HeteroscedasticDense(UNITS, **own, temperature=1.5, seed=SEED, name="head")
    head.build((None, FEATURES))
    set_weights(head)
    return head


def set_weights(head):
    """Sets fixed NumPy weights in a built head, and the step of its clock if it has one."""
    rng = np.random.default_rng(SEED)
    for weight in head.weights:
        is_step, inputs = "float" not in weight.dtype, weight.shape[0] if len(weight.shape) == 2 else 1
        weight.assign(7 if is_step else 0.5 * rng.standard_normal(weight.shape) / np.sqrt(inputs))


def set_largest_logit(head, x, size):
    """Scales the mean's kernel and bias so that its largest |logit| on x is `size`."""
    kernel, bias, *others = head.get_weights()
    scale = size / np.max(np.abs(x.astype("float64") @ kernel + bias))
    head.set_weights([(scale * kernel).astype("float32"), (scale * bias).astype("float32"), *others])


def data(link, examples):
    """Returns (features, labels): classes for softmax, label vectors for sigmoid."""
    rng = np.random.default_rng(SEED + 1)
    x = rng.standard_normal((examples, FEATURES)).astype("float32")
    classes = np.argmax(x @ rng.standard_normal((FEATURES, UNITS)) + rng.standard_normal((examples, UNITS)), axis=1)
    vectors = (rng.random((examples, UNITS)) < 0.2).astype("float32")
    return x, vectors if link.startswith("sigmoid") else classes.astype("int32")


def make_loss(link):
    from keras_het import links

    return resolve(links.Link, link.split()[0]).loss()


def write_noise(results, jit):
    """Writes training draws at several steps, eager and by a compiled `predict`."""
    import keras

    from keras_het import integrators

    class Draw(keras.layers.Layer):
        def __init__(self, rule):
            super().__init__()
            self.rule = rule

        def call(self, step):
            return tuple(self.rule.draw((SEED, step[0]), NUM_SAMPLES, UNITS, NUM_FACTORS))

    rules = {
        "MonteCarlo": integrators.MonteCarlo(),
        "antithetic": integrators.MonteCarlo(antithetic=True),
        "QuasiMonteCarlo": integrators.QuasiMonteCarlo(),
    }
    for name, rule in rules.items():
        inputs = keras.Input((), dtype="int32")
        model = keras.Model(inputs, Draw(rule)(inputs))
        model.compile(jit_compile=jit)
        for step in (0, 1, 12345, 2**31 - 1):
            eager = rule.draw((SEED, step), NUM_SAMPLES, UNITS, NUM_FACTORS)
            compiled = model.predict_on_batch(np.array([step], "int32"))
            for mode, nodes in (("eager", eager), ("compiled", compiled)):
                for part, noise in zip(("diagonal", "factor"), nodes, strict=True):
                    results[f"noise: {name}"][f"{mode}, step {step}, {part}"] = keras.ops.convert_to_numpy(noise)


def outputs_and_gradients(head, loss, training):
    """Returns a function of the features: outputs of a head, and in training gradients of its loss by weight.

    JAX compiles it once for all values of the weights, and would compile each operation of a call.
    """
    import keras

    from tests.gradients import layer_gradients

    def eager(x):
        gradients = layer_gradients(head, loss, x, training)[1] if training else {}  # a call moves the step of noise
        return head(x, training=training), gradients

    if keras.config.backend() != "jax":
        return eager
    import jax

    def loss_of(trainable, others, x):
        outputs, _ = head.stateless_call(trainable, others, x, training=training)
        return loss(outputs), outputs

    program = jax.jit(jax.grad(loss_of, has_aux=True) if training else lambda *x: ({}, loss_of(*x)[1]))
    names = [weight.path.split("/", 1)[-1] for weight in head.trainable_variables]

    def run(x):
        weights = [[v.value for v in each] for each in (head.trainable_variables, head.non_trainable_variables)]
        gradients, outputs = program(*weights, x)
        return outputs, dict(zip(names if training else (), map(np.asarray, gradients), strict=True))

    return run


def write_outputs_and_gradients(results, kind, link):
    """Writes outputs in training and inference, and gradients, at logits up to 3 and up to MAX_LOGIT."""
    import keras

    x, y = data(link, BATCH)
    loss, head = make_loss(link), make_head(kind, link)
    start = head.get_weights()
    runs = {each: outputs_and_gradients(head, lambda outputs: loss(y, outputs), each) for each in (True, False)}
    for training, size in itertools.product(runs, (3.0, MAX_LOGIT)):
        head.set_weights(start)  # also the step, which a call in training moves
        set_largest_logit(head, x, size)
        detail = f"logits to {size:g}, {'training' if training else 'inference'}"
        outputs, gradients = runs[training](x)
        results[f"outputs: {kind} {link}"][detail] = keras.ops.convert_to_numpy(outputs)
        for weight, gradient in gradients.items():
            if gradient is None or not np.any(gradient):
                received = f"none for {weight} of the {kind} {link} head"
                raise RuntimeError(f"Every trainable weight must have a gradient. Received: {received}")
            results[f"gradients: {kind} {link}"][f"{detail}, {weight}"] = gradient


def write_recording(results, case, model, x, y, jit, parts=("training",)):
    """Writes parts of a recording of a compiled model, as its weights after each step of a training."""
    from keras_het.parity import record

    plan = {"steps": range(1, FIT_STEPS + 1), "batch_size": BATCH, "parts": parts}
    recording = record(model, x, y, **plan, roundings=1, jit_compile=jit)  # the limits do not grow with a rounding
    if recording.failures:
        raise RuntimeError(f"Every part of {case} must be computed. Received: {recording.failures}")
    for part in parts:
        kind = KINDS[part]
        for name, array in recording.arrays[part].items():
            results[f"{kind}: {case}"][f"{part} {name}" if kind == "outputs" else name] = array
    for weight in model.trainable_variables:
        moved = np.max(np.abs(recording.arrays["training"][f"{weight.path}, step {FIT_STEPS}"]))
        if moved < 100 * LIMITS["fit"][1]:
            received = f"{weight.path} of {case} moved by {moved:g}"
            raise RuntimeError(f"The run must move every weight by much more than the limit. Received: {received}")


def fit_case(kind, link):
    """Returns a compiled model with a head, and its data, for a training by plain SGD."""
    import keras

    model = keras.Sequential([keras.Input((FEATURES,)), make_head(kind, link)], name="model")
    model.compile(keras.optimizers.SGD(LEARNING_RATES.get(link.split()[0], 0.5)), make_loss(link))
    return model, *data(link, BATCH * FIT_BATCHES)


def transition_case():
    """Returns a learned T behind a Dense layer, for a training by Adam, which amplifies small differences."""
    import keras

    from keras_het import layers

    flips = layers.NoiseTransition(UNITS, regularizer=keras.regularizers.L2(0.1), name="flips")
    dense = keras.layers.Dense(UNITS, "log_softmax", name="dense")
    model = keras.Sequential([keras.Input((FEATURES,)), dense, flips], name="model")
    dense.kernel.assign(np.random.default_rng(SEED).standard_normal((FEATURES, UNITS)))
    model.compile(optimizer=keras.optimizers.Adam(0.02), loss=make_loss("softmax"))
    return model, *data("softmax", BATCH * FIT_BATCHES)


def joint_case(name):
    """Returns a built head that returns a distribution, its loss, and (x, y)."""
    from keras_het import layers, losses

    rng, arguments = np.random.default_rng(SEED + 2), {"seed": SEED, "name": "head"}
    examples = (BATCH * FIT_BATCHES, *([5] if name == "joint pixels" else []))
    x = rng.standard_normal((*examples, FEATURES)).astype("float32")
    if name == "joint pixels":
        head = layers.StochasticSegmentation(UNITS, NUM_FACTORS, **arguments)
        loss = losses.JointSegmentationCrossentropy(UNITS, JOINT_SAMPLES, ignore_class=UNITS)
        y = rng.integers(UNITS + 1, size=examples).astype("int32")
    elif name == "joint targets":
        head, loss = layers.HeteroscedasticNormal(UNITS, NUM_FACTORS, **arguments), losses.MultivariateNormalNLL()
        y = rng.standard_normal((*examples, UNITS)).astype("float32")
    else:
        head = layers.JointHeteroscedasticDense(UNITS, NUM_FACTORS, **arguments)
        loss = losses.JointMultiLabelCrossentropy(JOINT_SAMPLES)
        y = rng.integers(-1, 2, size=(*examples, UNITS)).astype("float32")
    head.build(x.shape)
    set_weights(head)
    return head, loss, x, y


def write_joint(results, name, jit):
    """Writes a head of distributions after training by SGD, and its predictions."""
    import keras

    from keras_het.models import DistributionModel

    head, loss, x, y = joint_case(name)
    inputs = keras.Input(x.shape[1:])
    model = DistributionModel(inputs, head(inputs), name="model")
    model.compile(keras.optimizers.SGD(JOINT[name]), loss, jit_compile=jit)
    results[f"outputs: {name}"]["predictions of the head"] = model.predict_on_batch(x)
    write_recording(results, name, model, x, y, jit, list(KINDS))


def write(file, jit="auto"):
    """Computes everything on the active backend and saves it."""
    import keras

    from keras_het.parity.run import package_versions

    results = collections.defaultdict(dict)
    write_noise(results, jit)
    for kind, link in CASES:
        write_outputs_and_gradients(results, kind, link)
    for kind, link in FITTED:
        write_recording(results, f"{kind} {link}", *fit_case(kind, link), jit)
    write_recording(results, "NoiseTransition", *transition_case(), jit)
    for name in JOINT:
        write_joint(results, name, jit)
    recording = Recording(keras.config.backend(), versions=package_versions(), arrays=results)
    recording.save(file)
    print(f"{recording.label}: {sum(map(len, results.values()))} arrays in {file}")


def main(arguments):
    match arguments:
        case ["write", file]:
            return write(file)
        case ["write", "--jit", file]:
            return write(file, jit=True)
        case ["compare", _, _, *_]:
            comparison = compare(*map(Recording.load, arguments[1:]))
            print(*("".join(cell.ljust(20) for cell in line) for line in table(comparison)), "", sep="\n")
            print(*(f"{kind}: {text}" for kind, (_, _, text) in LIMITS.items()), "", comparison, sep="\n")
            return int(not comparison.is_equal)
    return __doc__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
