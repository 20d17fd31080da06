"""Seconds, or with --memory peak memory, of one training step of a heteroscedastic head beside a plain Dense layer.

KERAS_BACKEND=jax python benchmarks/speed.py [--quick] [--memory] [--no-jit] [--heads full] [--samples 64 256 1024] ...
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time

import keras
import numpy as np
from keras import ops

import keras_het

HEADS = {
    "Dense": None,
    "diagonal": lambda factors: {"num_factors": 0},
    "parameter-efficient": lambda factors: {"num_factors": factors, "parameter_efficient": True},
    "full": lambda factors: {"num_factors": factors},
}
QUICK = {"batch": 16, "features": 64, "units": 50, "factors": 5, "repeats": 3}
MATMUL_SIZE, EXP_SIZE = 2048, 1 << 22


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=128, help="B")
    parser.add_argument("--features", type=int, default=2048, help="D")
    parser.add_argument("--units", type=int, default=1000, help="K")
    parser.add_argument("--factors", type=int, default=15, help="R")
    parser.add_argument("--samples", type=int, nargs="+", help="S; 64 256 1024, or 256 4096 with --memory")
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--no-jit", action="store_true", help="TensorFlow without XLA, JAX without jit (PyTorch is always eager)")
    parser.add_argument("--memory", action="store_true", help="peak memory of a fresh process per row instead of seconds")
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--one-row", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(QUICK)
    options.samples = options.samples or ([256, 4096] if options.memory else [64, 256, 1024])
    options.jit = keras.config.backend() != "torch" and not options.no_jit
    options.run_eagerly = keras.config.backend() == "jax" and not options.jit
    return options


def rows_of(options):
    """(head, S) of every row; Dense has no S."""
    return [(head, samples) for head in options.heads for samples in (options.samples if HEADS[head] else [0])]


def make_step(head, samples, options):
    """A function that does one training step of a model that is the head alone, by the public API, and waits for its end."""
    layer = keras.layers.Dense(options.units)
    if HEADS[head]:
        integrator = keras_het.integrators.QuasiMonteCarlo(num_samples=samples)
        layer = keras_het.layers.HeteroscedasticDense(options.units, **HEADS[head](options.factors), integrator=integrator, seed=0)
    model = keras.Sequential([keras.Input((options.features,)), layer])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss=loss, jit_compile=options.jit, run_eagerly=options.run_eagerly)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((options.batch, options.features), dtype="float32")
    y = rng.integers(options.units, size=options.batch)

    def step():
        model.train_on_batch(x, y)
        return ops.convert_to_numpy(model.optimizer.iterations)  # written last: to read it is to wait for the step

    return step


def make_probe(function, shapes, options):
    """A function that computes `function`, a scalar, of normal arrays on the active backend, compiled as the step is, and waits."""
    rng = np.random.default_rng(0)
    arrays = [ops.convert_to_tensor(rng.standard_normal(shape, dtype="float32")) for shape in shapes]
    if keras.config.backend() == "jax":
        import jax

        function = jax.jit(function)
    elif keras.config.backend() == "tensorflow":
        import tensorflow as tf

        function = tf.function(function, jit_compile=options.jit)
    return lambda: ops.convert_to_numpy(function(*arrays))


def measure(functions, repeats):
    """Median seconds of each function. They take turns, so that a change in the machine's load meets all of them alike."""
    for function in functions.values():
        function(), function()  # compiles, and allocates
    seconds = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def floor(head, samples, options, exp_rate, flop_rate):
    """The least seconds of a step: 2 S B K exp, 3 passes of 2 S B K R flops (full), and the products of the affine maps.

    Those are 4 B D K flops for each of the maps, not 6: below this head nothing asks for the gradient of the features. The
    element-wise work, memory traffic and the optimizer count for nothing.
    """
    elements = options.batch * options.units
    maps = {"Dense": 1, "diagonal": 2, "parameter-efficient": 3, "full": 2 + options.factors}[head]
    passes = 3 * 2 * samples * elements * options.factors if head == "full" else 0
    return 2 * samples * elements / exp_rate + (passes + 4 * elements * options.features * maps) / flop_rate


def print_speed(options):
    probes = {
        "matmul": make_probe(lambda a, b: ops.max(ops.matmul(a, b)), [(MATMUL_SIZE, MATMUL_SIZE)] * 2, options),
        "exp": make_probe(lambda x: ops.sum(ops.exp(x)), [(EXP_SIZE,)], options),
    }
    rows = rows_of(options)
    steps = {row: make_step(*row, options) for row in rows}
    seconds = measure(probes | steps, options.repeats)
    flop_rate, exp_rate = 2 * MATMUL_SIZE**3 / seconds["matmul"], EXP_SIZE / seconds["exp"]
    lines = [["head", "S", "seconds", "times Dense", "floor", "times floor"]]
    for head, samples in rows:
        step, least = seconds[head, samples], floor(head, samples, options, exp_rate, flop_rate)
        ratio = f"{step / seconds['Dense', 0]:.1f}" if ("Dense", 0) in seconds else ""
        lines.append([head, str(samples or ""), f"{step:.3g}", ratio, f"{least:.2g}", f"{step / least:.1f}"])
    print_table(lines)
    print(f"\n{describe(options)}; median of {options.repeats} steps, load average {os.getloadavg()[0]:.1f}")
    print(f"in turn with the steps: {flop_rate / 1e9:.0f} GFLOP/s (matmul of {MATMUL_SIZE}), {exp_rate / 1e9:.2f}e9 exp/s")


def print_memory(options):
    """Runs every row in a fresh process of its own, two steps each."""
    lines = [["head", "S", "peak MiB", f"times S={options.samples[0]}"]]
    peaks = {}
    for head, samples in rows_of(options):
        command = [sys.executable, __file__, *sys.argv[1:], "--one-row", "--heads", head, "--samples", str(samples)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        peaks[head, samples] = json.loads(output.splitlines()[-1])
        ratio = f"{peaks[head, samples] / peaks[head, options.samples[0]]:.2f}" if samples else ""
        lines.append([head, str(samples or ""), f"{peaks[head, samples]:.0f}", ratio])
    print_table(lines)
    print(f"\n{describe(options)}; fresh process, two steps")


def peak_memory():
    """Peak resident MiB of this process. On Linux not by ru_maxrss, which a child inherits from a larger parent."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def describe(options):
    backend = keras.config.backend()
    mode = {"jax": "jit", "tensorflow": "XLA", "torch": "eager"}[backend] if not options.no_jit else "no jit"
    versions = (
        f"{backend} {__import__(backend).__version__} ({mode}), keras {keras.__version__}, {platform.machine()}, {os.cpu_count()} cores"
    )
    return f"{versions}; B={options.batch}, D={options.features}, K={options.units}, R={options.factors}"


def print_table(lines):
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")
        if number == 0:
            print("| " + " | ".join("-" * width for width in widths) + " |")


def main():
    options = parse()
    if options.one_row:
        (row,) = rows_of(options)
        step = make_step(*row, options)
        step(), step()
        print(json.dumps(peak_memory()))
    elif options.memory:
        print_memory(options)
    else:
        print_speed(options)


if __name__ == "__main__":
    main()
