"""Peak memory of new processes: constant in the number of nodes, and within 4 GiB for the joint losses.

In seconds, the compiler of JAX says how much memory a training step needs.
"""

import keras
import numpy as np
import pytest

from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from tests.common import python, sparse_crossentropy

thorough = pytest.mark.thorough  # minutes

# Not ru_maxrss: on Linux a child inherits it from its parent process, and a test session can be large.
PRINT_PEAK = """
import resource, sys
try:
    kibibytes = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
except FileNotFoundError:
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
print(kibibytes / 1024)
"""
HEAD = """
import keras, keras_het
import numpy as np

B, D, K, R = 128, 2048, 1000, 15
integrator = keras_het.integrators.QuasiMonteCarlo({num_samples})
quiet = dict(kernel_initializer="zeros")  # a random one would take memory of its own
head = keras_het.layers.HeteroscedasticDense(K, num_factors=R, integrator=integrator, seed=0, **quiet)
model = keras.Sequential([keras.Input((D,)), head])
# Without XLA TensorFlow runs up to ten iterations of a loop at a time, and how many moves the peak by chance.
jit = True if keras.config.backend() == "tensorflow" else "auto"
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss, jit_compile=jit)
rng = np.random.default_rng(0)
x = rng.standard_normal((B, D), dtype="float32")
"""
TRAIN = """
loss = model.train_on_batch(x, rng.integers(K, size=B))
assert np.isfinite(loss) and np.any(head.get_weights()[1]), "no training step was taken"
"""
PREDICT = "assert np.all(np.isfinite(model.predict_on_batch(x)))\n"
LOSS_AND_GRADIENT = """
import numpy as np
from keras_het import losses
from tests.gradients import value_and_gradients

rng = np.random.default_rng(0)
loss = losses.{loss}
y = rng.integers({classes}, size={labels}).astype("int32")
outputs = rng.standard_normal({outputs}, dtype="float32")
outputs[..., -1] = -1.0  # no training step
value, (gradient,) = value_and_gradients(lambda tensors: loss(y, tensors[0]), [outputs])
of_each = np.abs(gradient).reshape(-1, gradient.shape[-1]).max(0)[:-1]
assert np.isfinite(value) and np.all((0.0 < of_each) & (of_each < np.inf))
"""
SEGMENTATION = """
import keras, keras_het
import numpy as np

rng = np.random.default_rng(0)
inputs = keras.Input((256, 256, 3))
features = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
head = keras_het.layers.StochasticSegmentation(10, 10, seed=0)
model = keras_het.models.DistributionModel(inputs, head(features))
model.compile("adam", keras_het.losses.JointSegmentationCrossentropy(10, 20))
x, y = rng.standard_normal((4, 256, 256, 3), dtype="float32"), rng.integers(10, size=(4, 256, 256))
assert np.isfinite(model.train_on_batch(x, y))
"""
GIBIBYTES_4 = 4096.0


def peak_mebibytes(code):
    """Returns the peak resident MiB of a new process that runs `code`."""
    # glibc keeps freed blocks of up to 32 MiB, fragmented by chance (PyTorch: 1.1 to 1.9 GiB for one and the same
    # step). With a fixed threshold it gives them back, and the peak is what the step holds. A step that JAX finds
    # compiled would miss the memory of its compilation; and it is optimised as for users.
    as_users = {"JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_DISABLE_MOST_OPTIMIZATIONS": "false", "XLA_FLAGS": ""}
    run = python("-c", code + PRINT_PEAK, check=True, MALLOC_MMAP_THRESHOLD_=str(1 << 20), **as_users)
    return float(run.stdout.split()[-1])


def of_head(num_samples, use=TRAIN):
    return peak_mebibytes(HEAD.format(num_samples=num_samples) + use)


def of_pixels(num_samples):
    loss, shape = f"JointSegmentationCrossentropy(10, {num_samples})", (4, 256, 256)
    sizes = {"classes": 10, "labels": shape, "outputs": (*shape, 10 * (2 + 10) + 1)}
    return peak_mebibytes(LOSS_AND_GRADIENT.format(loss=loss, **sizes))


def of_labels(num_samples):
    sizes = {"classes": 2, "labels": (128, 1000), "outputs": (128, 1000 * (2 + 15) + 1)}
    return peak_mebibytes(LOSS_AND_GRADIENT.format(loss=f"JointMultiLabelCrossentropy({num_samples})", **sizes))


# Few nodes of pixels are ten chunks: TensorFlow has some chunks of a loop in flight, and with two or three not yet all.
@thorough
@pytest.mark.parametrize(
    ("measure", "few", "many"), [(of_head, 256, 4096), (of_pixels, 80, 320), (of_labels, 250, 1000)]
)
def test_it_stays_within_the_limit_and_is_flat_in_the_nodes(measure, few, many):
    small, large = measure(few), measure(many)
    text = f"{keras.config.backend()}: {small:.0f} MiB at S={few}, {large:.0f} MiB at S={many}"
    assert small <= GIBIBYTES_4, text
    assert large <= min(1.15 * small, GIBIBYTES_4), text


@thorough
def test_prediction_does_not_hold_the_nodes_at_once_either():
    few, many = (of_head(num_samples, PREDICT) for num_samples in (256, 2048))
    all_at_once = 128 * 1000 * (2048 - 256) * 4 / 2**20  # MiB that a block of all the nodes would add
    assert many - few < 0.35 * all_at_once, f"{few:.0f} MiB at S=256, {many:.0f} MiB at S=2048"


@thorough
def test_a_training_step_of_a_model_stays_within_the_limit():
    assert peak_mebibytes(SEGMENTATION) <= GIBIBYTES_4


BATCH, FEATURES, UNITS, FACTORS = 128, 64, 1000, 15
FEW, MANY = 256, 2048


def step_bytes(num_samples, chunk_size=None):
    """Returns the bytes that the loss of a batch and its gradient need beside arguments and results."""
    import jax

    head = HeteroscedasticDense(UNITS, FACTORS, integrator=QuasiMonteCarlo(num_samples, chunk_size=chunk_size), seed=0)
    head.build((None, FEATURES))
    loss = sparse_crossentropy()

    def loss_of(trainable, others, x, y):
        outputs, _ = head.stateless_call(trainable, others, x, training=True)
        return loss(y, outputs)

    weights = ([v.value for v in head.trainable_variables], [v.value for v in head.non_trainable_variables])
    x, y = np.zeros((BATCH, FEATURES), "float32"), np.zeros(BATCH, "int32")
    return jax.jit(jax.grad(loss_of)).lower(*weights, x, y).compile().memory_analysis().temp_size_in_bytes


NODES = 4 * (MANY - FEW) * (UNITS + FACTORS)  # bytes that the nodes themselves take


@pytest.mark.skipif(keras.config.backend() != "jax", reason="only JAX says what a program will need")
def test_more_samples_add_their_nodes_alone():
    assert (step_bytes(MANY) - step_bytes(FEW)) <= 3 * NODES
    assert 3 * NODES < 4 * BATCH * UNITS * (MANY - FEW) / 20  # far below what all logits would take
