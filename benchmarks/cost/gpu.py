"""Agreement with the CPU, seconds and memory of each head on an accelerator, and trainings that must stay finite.

python -m benchmarks.cost.gpu [--backends jax] [--parts agreement speed policies training blocks] [--quick]
    [--heads full] [--nodes 256] [--compilers jit_compile] [--output FOLDER]
(--backends: by default KERAS_BACKEND, or JAX; --compilers: PyTorch also with each; --heads and --nodes select rows)

`agreement` compares one step of gradient descent from equal weights on the processor and on the accelerator, with
matrix products in float32 and in TensorFloat-32. The exit code is 1 if float32 differs by more than LIMITS. `speed`
measures beside the roofline of `speed.py`, with the card's own rates from the same process. `policies` trains under
each dtype policy. `training` repeats 1,215 steps of trainings that ended in NaN on an H100, with several forms of the
gradient, at two temperatures, and on JAX with and without Triton's matrix products. It prints the first step that is
not finite, and the weights. The exit code is also 1 if that happens to the head as it is. `blocks` varies the size of a
block, but not by default. Each part writes its own file. `--quick` runs agreement, speed and training in small. Without
an accelerator, a quick pass on the processor shows that the code runs, and no file is written. Every process also
receives your XLA_FLAGS, such as --xla_gpu_verify_triton_fusion_numerics=true.
"""

import itertools
import json
import os
import pathlib
import sys
import tempfile

from benchmarks.cost import speed
from benchmarks.lib import harness, results

BASE = speed.BASE
ROWS = [
    *(("diagonal", {**BASE, "R": 0, "S": s}) for s in (256, 1024)),
    *(("full", {**BASE, "S": s}) for s in (256, 1024)),
    *(("parameter-efficient", {**BASE, "S": s}) for s in (256, 1024)),
    ("parameter-efficient", {**BASE, "K": 21_843, "R": 50, "S": 256}),
    ("sigmoid parameter-efficient", {**BASE, "K": 21_843, "R": 50, "S": 0}),
]
QUICK_SIZES = {"B": 16, "D": 64, "K": 100, "R": 5, "S": 64}
QUICK_ROWS = [("full", QUICK_SIZES), ("sigmoid parameter-efficient", {**QUICK_SIZES, "S": 0})]
SIZES = {"B": 32, "D": 256, "K": 1000, "R": 15, "S": 256}  # part "agreement"
AGREEMENT_HEADS = ["diagonal", "full", "parameter-efficient"]
LIMITS = {"noise": 0, "outputs": 1e-5, "gradients": 1e-4}  # limits of tests/parity.py, with TensorFloat-32 off
PARTS = ["agreement", "speed", "policies", "training", "blocks"]
QUICK_PARTS = ["agreement", "speed", "training"]
POLICIES, STEPS = ["float32", "mixed_bfloat16", "bfloat16"], 50
TRAINING = {"examples": 40_500, "B": 100, "D": 1280, "K": 100, "R": 15, "steps": 1215}
QUICK_TRAINING = {"examples": 500, "B": 50, "D": 32, "K": 10, "R": 3, "steps": 20}
RATE, TEMPERATURES = 1e-3, [1.0, 5.0]  # of trainings that ended in NaN
FORMS = ["package", "both in the loop", "none"]  # concatenations of the gradient, see divergence.py
TRITON = {"on": "", "off": "--xla_gpu_enable_triton_gemm=false"}  # matrix products on JAX
BLOCKS = (1 << 20, 1 << 22, 1 << 24, 1 << 26)  # logits of a block


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
    """Saves the training noise, log p (or logits) and gradients of a step.

    The gradients are the change of the weights at learning rate 1.
    """
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
    """Returns the first and last loss of a network under a dtype policy, on data that it can learn."""
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
    if what == "accelerator":
        return harness.accelerator()
    if what == "step":
        return one_step(**row)
    if what == "losses":
        return losses(**row)
    if what == "training":
        from benchmarks.cost import divergence

        return divergence.train(**row)
    from keras_het.ops import blocking

    blocking.ACCELERATOR_ELEMENTS = row.pop("elements")
    return speed.measure_seconds(**row)


SETTINGS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # so that several processes share the card


def fresh(backend, what, environment=(), **row):
    """Returns the measurements of a new process on the accelerator of a backend."""
    settings = {"KERAS_BACKEND": backend, **SETTINGS, **dict(environment)}
    return harness.in_fresh_process(__spec__.name, {"what": what, **row}, **settings)


def speed_table(backend, rows, repeats, compilers=()):
    """Returns seconds beside Dense and the floor, and memory, without PyTorch's compiler and with each."""
    columns = ["head", "compiler", "mode", *"BKRS", "ms (quartiles)", "times Dense", "times floor", "peak MiB"]
    lines = [columns]
    for compiler in (None, *compilers):
        for row in speed.measure(backend, rows, repeats, compiler, **SETTINGS):
            sizes = [str(row[name] or "") for name in "BKRS"]
            ratios = [f"{row['times dense']:.1f}", f"{row['times floor']:.1f}", f"{row['peak_mib']:.0f}"]
            lines.append([row["head"], compiler or "", row["mode"], *sizes, harness.spread(row), *ratios])
    return lines


def blocks_table(backend, rows, repeats):
    """Returns milliseconds of a step and of a prediction, and times the floor, by the logits of a block."""
    lines = [["head", "S", *(f"{mode}, 2^{size.bit_length() - 1}" for mode in speed.MODES for size in BLOCKS)]]
    for head, sizes in rows:
        results = [fresh(backend, "seconds", head=head, sizes=sizes, repeats=repeats, elements=size) for size in BLOCKS]
        cells = [(timed[mode]["seconds"], timed[mode]["times floor"]) for mode in speed.MODES for timed in results]
        lines.append([head, str(sizes["S"]), *(f"{harness.milliseconds(s)} ({floors:.1f})" for s, floors in cells)])
    return lines


def agreement_table(backend, heads):
    """Returns the distances of a step from the processor's; gradients are relative to the largest of each weight."""
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
        ours, processors = (str(pathlib.Path(folder) / f"{name}.npz") for name in ("accelerator", "processor"))
        for head in heads:
            fresh(backend, "step", speed.ON_PROCESSOR, head=head, tf32=False, path=processors)
            for tf32 in (False, True):
                fresh(backend, "step", head=head, tf32=tf32, path=ours)
                noise, outputs, gradients = distances(ours, processors)
                lines.append([head, "on" if tf32 else "off", f"{noise:.0f}", f"{outputs:.1e}", f"{gradients:.1e}"])
    return lines


def distances(path, expected_path):
    """Returns how many numbers of the noise differ in their bits, and the distances of outputs and gradients."""
    import numpy as np

    with np.load(path) as ours, np.load(expected_path) as expected:
        far = {name: np.max(np.abs(ours[name] - expected[name])) for name in expected}
        noise = [ours[name].view("u4") != expected[name].view("u4") for name in expected if name.startswith("noise")]
        gradients = [far[name] / np.max(np.abs(expected[name])) for name in expected if name.startswith("gradient")]
    return sum(map(np.sum, noise)), far["outputs"], np.max(gradients)  # nan, if a gradient is


def above_limits(table):
    """Returns the float32 rows of a table of agreement that exceed LIMITS, as text; nan exceeds all."""
    return [
        f"{head}: {name} differ by {figure} between accelerator and processor (limit {limit:g})"
        for head, tf32, *figures in table[1:]
        for (name, limit), figure in zip(LIMITS.items(), figures, strict=True)
        if tf32 == "off" and not float(figure) <= limit
    ]


def policy_table(backend):
    """Returns the loss under each dtype policy, beside a plain Dense head that also computes in float32."""
    lines = [["dtype policy of the network", "head", f"loss, step 1 to {STEPS}"]]
    for policy in POLICIES:
        for head in ("Dense", "full"):
            losses = fresh(backend, "losses", policy=policy, head=head)
            lines.append([policy, head, f"{losses['first']:.3f} to {losses['last']:.3f}"])
    return lines


def training_table(backend, is_quick):
    """Returns for each training, in a new process, the first step that is not finite, or the last one.

    A process that crashes, for example by a launch failure of CUDA, is an outcome too.
    """
    sizes, temperatures = (QUICK_TRAINING, TEMPERATURES[:1]) if is_quick else (TRAINING, TEMPERATURES)
    products = TRITON if backend == "jax" and not is_quick else [""]
    lines = [["concatenations", "temperature", "Triton's products", "outcome", "loss", "largest absolute weight"]]
    for product, temperature, form in itertools.product(products, temperatures, FORMS):
        row = {"form": form, "temperature": temperature, "rate": RATE, "sizes": sizes}
        flags = f"{os.environ.get('XLA_FLAGS', '')} {TRITON.get(product, '')}".strip()
        try:
            result = fresh(backend, "training", {"XLA_FLAGS": flags} if flags else {}, **row)
        except RuntimeError as error:
            cells = [f"failed: {str(error).strip().splitlines()[-1][:150]}", "", ""]
        else:
            outcome = f"step {result['step']}: {', '.join(result['not finite']) or 'finite'}"
            cells = [outcome, f"{result['loss']:.4f}", f"{result['largest']:.3f}"]
        lines.append([form, f"{temperature:g}", product, *cells])
        print(f"{backend}:", ", ".join(lines[-1]), flush=True)
    return lines


def not_finite(table):
    """Returns the trainings of the package that failed or are not finite, as text."""
    return [
        f"training at temperature {temperature}{product and f', Triton {product}'}: {outcome}"
        for form, temperature, product, outcome, *_ in table[1:]
        if form == FORMS[0] and not outcome.endswith(": finite")
    ]


def measure(backend, options, is_quick):
    """Yields the parts of one backend, each with its table."""
    rows, repeats = (QUICK_ROWS, speed.QUICK_REPEATS) if is_quick else (ROWS, options.repeats)
    rows = [row for row in rows if options.heads is None or row[0] in options.heads]
    rows = [row for row in rows if options.nodes is None or row[1]["S"] in options.nodes]
    parts = {
        "agreement": lambda: agreement_table(backend, ["full"] if is_quick else AGREEMENT_HEADS),
        "speed": lambda: speed_table(backend, rows, repeats, options.compilers),
        "policies": lambda: policy_table(backend),
        "training": lambda: training_table(backend, is_quick),
        "blocks": lambda: blocks_table(backend, [row for row in rows if row[1]["S"]], repeats),
    }
    for name in options.parts or (QUICK_PARTS if is_quick else PARTS[:-1]):
        yield name, parts[name]()


CHECKS = {"agreement": above_limits, "training": not_finite}


def main():
    parser = harness.command_line(__doc__, repeats=9)
    default = [os.environ.get("KERAS_BACKEND", "jax")]
    parser.add_argument("--backends", nargs="+", choices=speed.BACKENDS, default=default)
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="all but blocks; with --quick not policies")
    parser.add_argument("--heads", nargs="+", choices=sorted({name for name, _ in ROWS}))
    parser.add_argument("--nodes", nargs="+", type=int)
    parser.add_argument("--compilers", nargs="+", choices=speed.COMPILERS, default=[])
    options = parser.parse_args()
    if options.row:
        return print(json.dumps(measure_row(**options.row)))
    failures = []
    for backend in options.backends:
        accelerator = fresh(backend, "accelerator")
        if accelerator is None:
            print(f"{backend} has no accelerator here. A quick pass on the processor shows that the benchmark runs.")
        for part, table in measure(backend, options, options.quick or accelerator is None):
            failures += CHECKS[part](table) if part in CHECKS else []
            if accelerator is None:
                print(f"\n{results.text_of({part: table})}\n\nNo file was written: these are numbers of the processor.")
            else:
                results.publish(options.output, f"gpu_{part}_{backend}", {part: table}, [0], [backend], accelerator)
    return sys.exit("\n".join(failures)) if failures else None


if __name__ == "__main__":
    main()
