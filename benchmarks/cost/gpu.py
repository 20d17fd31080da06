"""Agreement with the CPU, seconds and memory of each head on an accelerator.

python -m benchmarks.cost.gpu [--backends jax] [--parts agreement speed] [--quick] [--heads full] [--nodes 256]
    [--compilers jit_compile] [--output FOLDER]
(--backends: by default KERAS_BACKEND, or JAX; --compilers: PyTorch also with each; --heads and --nodes select rows)

`agreement` compares one step of gradient descent from equal weights on the processor and on the accelerator, with
matrix products in float32 and in TensorFloat-32. The exit code is 1 if float32 differs by more than LIMITS. `speed`
measures beside the roofline of `speed.py`, with the card's own rates from the same process. Each part writes its own
file. `--quick` runs in small. Without an accelerator, a quick pass on the processor shows that the code runs, and no
file is written.
"""

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
PARTS = ["agreement", "speed"]


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


def measure_row(what, **row):
    return harness.accelerator() if what == "accelerator" else one_step(**row)


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


def measure(backend, options, is_quick):
    """Yields the parts of one backend, each with its table."""
    rows, repeats = (QUICK_ROWS, speed.QUICK_REPEATS) if is_quick else (ROWS, options.repeats)
    rows = [row for row in rows if options.heads is None or row[0] in options.heads]
    rows = [row for row in rows if options.nodes is None or row[1]["S"] in options.nodes]
    parts = {
        "agreement": lambda: agreement_table(backend, ["full"] if is_quick else AGREEMENT_HEADS),
        "speed": lambda: speed_table(backend, rows, repeats, options.compilers),
    }
    for name in options.parts:
        yield name, parts[name]()


def main():
    parser = harness.command_line(__doc__, measure_row, parts=tuple(PARTS), repeats=9)
    default = [os.environ.get("KERAS_BACKEND", "jax")]
    parser.add_argument("--backends", nargs="+", choices=speed.BACKENDS, default=default)
    parser.add_argument("--heads", nargs="+", choices=sorted({name for name, _ in ROWS}))
    parser.add_argument("--nodes", nargs="+", type=int)
    parser.add_argument("--compilers", nargs="+", choices=speed.COMPILERS, default=[])
    options = parser.parse_args()
    failures = []
    for backend in options.backends:
        accelerator = fresh(backend, "accelerator")
        if accelerator is None:
            print(f"{backend} has no accelerator here. A quick pass on the processor shows that the benchmark runs.")
        for part, table in measure(backend, options, options.quick or accelerator is None):
            failures += above_limits(table) if part == "agreement" else []
            if accelerator is None:
                print(f"\n{results.text_of({part: table})}\n\nNo file was written: these are numbers of the processor.")
            else:
                results.publish(options.output, f"gpu_{part}_{backend}", {part: table}, [0], [backend], accelerator)
    return sys.exit("\n".join(failures)) if failures else None


if __name__ == "__main__":
    main()
