"""Trainings of the full head on synthetic features, until a weight is not finite: the part `training` of `gpu.py`.

Trainings of the head on 100 classes ended in NaN on an H100 with JAX 0.11.2 (results/real_pretrained). Their sizes,
optimizer and schedule are repeated here, with features that NumPy draws. XLA miscompiles some fusions with a
concatenation on GPUs (jax-ml/jax issues 39486 and 40588), so FORMS differ in the concatenations of the backward pass:

    package            of (e_R, 1), once for all nodes, and of the two rows of the softmax, in the loop
    both in the loop   of (e_R, 1) for each chunk of nodes, as the head was when trainings failed
    none               sums without a concatenation

On an accelerator one chunk has all nodes of these sizes, so XLA removes the loop. It also replaces a concatenation with
ones by padding (seen in its programs for CPUs). Then `package` and `both in the loop` are nearly the same program, and
`none` is the comparison that counts.
"""

import keras
import numpy as np
from keras import ops

import keras_het
from keras_het.ops.low_rank import _FactorNormal
from keras_het.ops.passes import softmax_weights
from keras_het.ops.softmax import SoftmaxMean

ERROR_RATE, DECAY = 0.4, 0.05


def vjp_in_the_loop(self, cotangent, chunk):
    eps_diag, eps_factor, _ = chunk
    eps_factor_and_one = ops.concatenate([eps_factor, ops.ones_like(eps_factor[:1])])
    return ops.sum(cotangent * eps_diag, axis=-1), ops.matmul(cotangent, ops.transpose(eps_factor_and_one))


def zero_sums(self):
    return ops.zeros_like(self.loc), ops.zeros_like(self.loc), ops.zeros((*self.loc.shape, self.size[1]))


def vjp_without(self, cotangent, chunk):
    eps_diag, eps_factor, _ = chunk
    sums = ops.sum(cotangent * eps_diag, axis=-1), ops.sum(cotangent, axis=-1)
    return *sums, ops.matmul(cotangent, ops.transpose(eps_factor))


def cotangent_without(self, logits, log_p, upstream):
    p, upstream, weights = ops.exp(log_p)[..., None], upstream[..., None], softmax_weights(logits)
    upstream_total, total = (ops.sum(x * weights, axis=1, keepdims=True) for x in (upstream, p))
    return weights * (upstream / total - p * upstream_total / ops.square(total))


FORMS = {
    "package": [],
    "both in the loop": [(_FactorNormal, "vjp", vjp_in_the_loop)],
    "none": [
        (_FactorNormal, "zero_sums", zero_sums),
        (_FactorNormal, "vjp", vjp_without),
        (_FactorNormal, "gradients", lambda self, scale_diag, loc, factor: (loc, scale_diag, factor)),
        (SoftmaxMean, "cotangent", cotangent_without),
    ],
}


def draw(examples, D, K):
    """Returns standardised features of K classes, `(examples, D)`, and labels, of which ERROR_RATE are errors."""
    rng = np.random.default_rng(0)
    y = rng.integers(K, size=examples)
    x = rng.standard_normal((examples, D), dtype="float32")
    x += 0.1 * rng.standard_normal((K, D), dtype="float32")[y]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    is_error = rng.random(examples) < ERROR_RATE
    return x, np.where(is_error, (y + rng.integers(1, K, size=examples)) % K, y).astype("int32")


def make_model(D, K, R, temperature, rate, steps):
    """Returns the head with the optimizer of `real.networks`: the rate rises for a tenth of the steps, then falls."""
    keras.utils.set_random_seed(1000)
    head = keras_het.HeteroscedasticDense(K, R, temperature=temperature, seed=0)
    model = keras.Sequential([keras.Input((D,)), head])
    warmup = steps // 10
    schedule = keras.optimizers.schedules.CosineDecay(0.0, steps - warmup, warmup_target=rate, warmup_steps=warmup)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(schedule, weight_decay=DECAY), loss)
    return model


def train(form, temperature, rate, sizes):
    """Trains one form of the head, in a process of its own because it changes the package; see `follow`."""
    for owner, name, function in FORMS[form]:
        setattr(owner, name, function)
    return follow(temperature, rate, **sizes)


def follow(temperature, rate, examples, B, D, K, R, steps):
    """Returns the last step, its loss, the largest absolute weight after it, and what is not finite, by name.

    The training ends when the loss or a weight is not finite. AdamW makes a weight NaN in the step in which its
    gradient is not finite.
    """
    x, y = draw(examples, D, K)
    model = make_model(D, K, R, temperature, rate, steps)
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.permutation(examples) for _ in range(-(-steps * B // examples))])
    for step in range(1, steps + 1):
        chosen = rows[(step - 1) * B : step * B]
        model.reset_metrics()  # else the loss is the mean over all steps
        loss = float(model.train_on_batch(x[chosen], y[chosen]))
        weights = {weight.path: ops.convert_to_numpy(weight) for weight in model.trainable_weights}
        wrong = [] if np.isfinite(loss) else ["loss"]
        wrong += [path for path, value in weights.items() if not np.all(np.isfinite(value))]
        if wrong:
            break
    largest = float(np.max([np.max(np.abs(value)) for value in weights.values()]))  # not `max`, which loses NaN
    return {"step": step, "loss": loss, "largest": largest, "not finite": wrong}
