"""An accelerator: seconds and memory of heads, sizes of blocks, agreement with the processor, half precision.

KERAS_BACKEND=jax python -m benchmarks.cost.gpu [--parts speed blocks agreement policies] [--quick]
    [--heads full] [--nodes 256] [--compilers jit_compile] [--output FOLDER]
(or KERAS_BACKEND=tensorflow or torch; --compilers is for PyTorch, once more with each; --heads and --nodes pick rows)

The floor is the roofline of `speed.py`, from the card's own rates in the same process. Agreement: one step of gradient
descent from equal weights, on the processor and on the accelerator, with matrix products in float32 and in
TensorFloat-32. Without an accelerator everything runs on the processor, which shows only that it runs.
"""

import itertools
import json
import os
import pathlib
import tempfile

from benchmarks.cost import speed
from benchmarks.lib import harness
from benchmarks.lib.results import publish

BASE = {"B": 128, "D": 2048, "K": 1000, "R": 15}
ROWS = [
    *(("diagonal", {**BASE, "R": 0, "S": s}) for s in (256, 1024)),
    *(("full", {**BASE, "S": s}) for s in (256, 1024)),
    *(("parameter-efficient", {**BASE, "S": s}) for s in (256, 1024)),
    ("parameter-efficient", {**BASE, "K": 21_843, "R": 50, "S": 256}),
    ("sigmoid parameter-efficient", {**BASE, "K": 21_843, "R": 50, "S": 0}),
]
QUICK_ROWS = [("full", speed.QUICK), ("sigmoid parameter-efficient", {**speed.QUICK, "S": 0})]
SIZES = {"B": 32, "D": 256, "K": 1000, "R": 15, "S": 256}  # of the agreement
PARTS = ["speed", "blocks", "agreement", "policies"]
POLICIES, STEPS = ["float32", "mixed_bfloat16", "bfloat16"], 50
BLOCKS = (1 << 20, 1 << 22, 1 << 24, 1 << 26)  # logits of a block
ON_PROCESSOR = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


def set_tf32(on):
    """Allows or forbids matrix products of float32 to round their factors to ten bits."""
    import keras

    if keras.config.backend() == "jax":
        import jax

        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if on else "float32")
    elif keras.config.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(on)
    else:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = on


def one_step(head, tf32, path):
    """Saves a step's training noise, log p (or logits), and gradients, as the weights' change at learning rate 1."""
    import keras
    import numpy as np

    from keras_het.ops.nodes import quasi_random

    set_tf32(tf32)
    keras.utils.set_random_seed(0)
    model, x, y = speed.make_model(head, learning_rate=1.0, **SIZES)
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(0.05 * rng.standard_normal(weight.shape))
    before = [keras.ops.convert_to_numpy(weight) * 1 for weight in model.trainable_weights]
    outputs = model.predict_on_batch(x)
    model.train_on_batch(x, y)
    after = [keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights]
    noise = [keras.ops.convert_to_numpy(x) for x in quasi_random((0, 1), SIZES["S"], SIZES["K"], SIZES["R"])]
    gradients = {f"gradient {i}": old - new for i, (old, new) in enumerate(zip(before, after, strict=True))}
    np.savez(path, outputs=outputs, **{f"noise {i}": x for i, x in enumerate(noise)}, **gradients)
    return {}


def losses(policy, head):
    """The loss at the first and last of some steps of a network under a dtype policy, on data that can be learnt."""
    import keras
    import numpy as np

    import keras_het

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((512, 32), dtype="float32")
    y = np.argmax(x @ rng.standard_normal((32, 20)), axis=-1)
    layer = (
        keras_het.layers.HeteroscedasticDense(20, 5, seed=0)
        if head == "full"
        else keras.layers.Dense(20, dtype="float32")
    )
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(128, activation="relu"), layer])
    # Not Adam: under the policy "bfloat16" its moments have too few digits, whatever the head.
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    values = [float(model.train_on_batch(x, y)) for _ in range(STEPS)]
    return {"first": values[0], "last": values[-1]}


def measure_row(what, **row):
    if what == "machine":
        return harness.machine()
    if what == "step":
        return one_step(**row)
    if what == "losses":
        return losses(**row)
    if what == "memory":
        call = speed.make_call(row["head"], "train", row["compiler"], **row["sizes"])
        call(), call()
        return {"peak_mib": harness.peak_device_memory()}
    if "elements" in row:
        from keras_het.ops import blocking

        blocking.ACCELERATOR_ELEMENTS = row.pop("elements")
    return speed.measure_seconds(**row, probe_sizes=harness.ACCELERATOR if harness.accelerator() else harness.PROCESSOR)


def fresh(what, environment=(), **row):
    return harness.in_fresh_process(
        __spec__.name, {"what": what, **row}, XLA_PYTHON_CLIENT_PREALLOCATE="false", **dict(environment)
    )


def speed_table(rows, repeats, compilers=()):
    """Seconds beside Dense and the floor, and memory, with no compiler of PyTorch and with each that is named."""
    lines = [
        ["head", "compiler", "mode", *"BKRS", "ms (quartiles)", "times Dense", "times floor", "peak MiB of a step"]
    ]
    for (head, sizes), compiler in itertools.product(rows, (None, *compilers)):
        timed = fresh("seconds", head=head, sizes=sizes, repeats=repeats, compiler=compiler)
        memory = fresh("memory", head=head, sizes=sizes, compiler=compiler)["peak_mib"]
        for mode in speed.MODES:
            found = timed[mode]
            ratios = [f"{found['times dense']:.1f}", f"{found['times floor']:.1f}", f"{memory:.0f}"]
            own = [str(sizes[name] or "") for name in "BKRS"]
            lines.append([head, compiler or "", mode, *own, harness.spread(found), *ratios])
        print(harness.markdown(lines[-2:]), flush=True)
    return lines


def blocks_table(rows, repeats):
    """Milliseconds of a training step and of a prediction, and times the floor, by the logits of a block."""
    lines = [["head", "S", *(f"{mode}, 2^{size.bit_length() - 1}" for mode in speed.MODES for size in BLOCKS)]]
    for head, sizes in rows:
        found = [fresh("seconds", head=head, sizes=sizes, repeats=repeats, elements=size) for size in BLOCKS]
        cells = [(timed[mode]["seconds"], timed[mode]["times floor"]) for mode in speed.MODES for timed in found]
        lines.append([head, str(sizes["S"]), *(f"{harness.milliseconds(s)} ({floors:.1f})" for s, floors in cells)])
    return lines


def agreement_table(heads):
    """Distances of a step from the processor's: noise, outputs, and gradients by the largest of each weight."""
    import numpy as np

    lines = [
        [
            "head",
            "TF32",
            "noise: numbers that differ",
            "outputs, largest difference",
            "gradients, largest relative difference",
        ]
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        for head in heads:
            fresh("step", ON_PROCESSOR, head=head, tf32=False, path=str(path / "processor.npz"))
            expected = np.load(path / "processor.npz")
            for tf32 in (False, True):
                fresh("step", head=head, tf32=tf32, path=str(path / "accelerator.npz"))
                found = np.load(path / "accelerator.npz")
                noise = sum(np.sum(found[name] != expected[name]) for name in found if name.startswith("noise"))
                outputs = np.max(np.abs(found["outputs"] - expected["outputs"]))
                worst = max(
                    np.max(np.abs(found[name] - expected[name])) / np.max(np.abs(expected[name]))
                    for name in found
                    if name.startswith("gradient")
                )
                lines.append([head, "on" if tf32 else "off", str(noise), f"{outputs:.1e}", f"{worst:.1e}"])
    return lines


def policy_table():
    """The loss under each dtype policy, beside a plain Dense head that computes in float32 as ours does."""
    lines = [["dtype policy of the network", "head", f"loss, step 1 to {STEPS}"]]
    for policy in POLICIES:
        for head in ("Dense", "full"):
            found = fresh("losses", policy=policy, head=head)
            lines.append([policy, head, f"{found['first']:.3f} to {found['last']:.3f}"])
    return lines


def main():
    parser = harness.command_line(__doc__, repeats=9)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--heads", nargs="+", choices=sorted({name for name, _ in ROWS}))
    parser.add_argument("--nodes", nargs="+", type=int)
    parser.add_argument("--compilers", nargs="+", choices=speed.COMPILERS, default=[])
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measure_row(**options.row)))
        return
    rows, repeats = (QUICK_ROWS, 3) if options.quick else (ROWS, options.repeats)
    rows = [row for row in rows if options.heads is None or row[0] in options.heads]
    rows = [row for row in rows if options.nodes is None or row[1]["S"] in options.nodes]
    heads = ["full"] if options.quick else ["diagonal", "full", "parameter-efficient"]
    parts = {
        "speed": lambda: speed_table(rows, repeats, options.compilers),
        "blocks": lambda: blocks_table([row for row in rows if row[1]["S"]], repeats),
        "agreement": lambda: agreement_table(heads),
        "policies": policy_table,
    }
    backend = os.environ["KERAS_BACKEND"]
    for name in options.parts:
        publish(options.output, f"gpu_{name}_{backend}", {name: parts[name]()}, [0], [backend], fresh("machine"))


if __name__ == "__main__":
    main()
