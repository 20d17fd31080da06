"""Harness: compiled functions, repeats in turn, machine rates, new processes, memory, tables."""

import argparse
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time
from typing import NamedTuple


class ProbeSizes(NamedTuple):
    """Rows of a square matrix, elements to exponentiate, elements to read.

    They are large, so that a call costs little.
    """

    matmul: int
    exp: int
    read: int


PROCESSOR, ACCELERATOR = ProbeSizes(2048, 1 << 22, 1 << 25), ProbeSizes(8192, 1 << 27, 1 << 28)


def parser_of(description, **options):
    """Returns a parser with the output folder. Its description is the first line of this text.

    `options` are default values by name. An integer or a path takes one value, a tuple of words some of them, a tuple
    of integers any others, and False is a switch. A dict has the arguments of `add_argument`.
    """
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    options |= {"output": {**_argument(pathlib.Path("benchmark_results")), "help": "folder for what it writes"}}
    for name, value in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **value if isinstance(value, dict) else _argument(value))
    return parser


def _argument(default):
    """Returns the arguments of `add_argument` for a default value."""
    if isinstance(default, bool):
        return {"action": "store_true"}
    if not isinstance(default, tuple):
        return {"type": pathlib.Path if isinstance(default, pathlib.Path) else int, "default": default}
    if isinstance(default[0], int):
        return {"type": int, "nargs": "+", "default": list(default)}
    return {"choices": default, "nargs": "+", "default": list(default), "metavar": "NAME"}


def command_line(description, measure=None, **options):
    """Returns a parser of measurements, with `--quick`.

    `in_fresh_process` starts a benchmark again with `--row`. Then the parser prints what `measure` returns of the row,
    and ends the process.
    """

    class Row(argparse.Action):
        def __call__(self, parser, values, row, option=None):
            print(json.dumps(measure(**row)))
            parser.exit()

    parser = parser_of(description, **options)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--row", type=json.loads, action=Row, help=argparse.SUPPRESS)
    return parser


class Timing(NamedTuple):
    """Seconds of repeated calls: the median, and the quartiles for the spread."""

    median: float
    low: float
    high: float


def measure(functions, repeats, warmup=2):
    """Returns `Timing` of each function of a dict.

    They take turns, so that a change in the machine's load meets all of them alike. Every function must wait for its
    own result. The calls of the warm-up compile and allocate, and are not counted.
    """
    for function in functions.values():
        for _ in range(warmup):
            function()
    seconds = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: Timing(statistics.median(values), *_quartiles(values)) for name, values in seconds.items()}


def _quartiles(values):
    if len(values) < 3:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def compiled(function):
    """Returns `function` of tensors, compiled as Keras compiles a model (not on PyTorch), and waits for its result."""
    import keras

    backend = keras.config.backend()
    if backend == "jax":
        import jax

        function = jax.jit(function)
    elif backend == "tensorflow":
        import tensorflow as tf

        function = tf.function(function, jit_compile=True)
    elif backend == "torch":
        import torch

        function = torch.no_grad()(function)
    return lambda *tensors: wait(function(*tensors))


def wait(tensor):
    """Copies a small tensor to the host, which ends after all computations that it depends on."""
    import keras

    return keras.ops.convert_to_numpy(tensor)


def probes(sizes=PROCESSOR):
    """Returns functions whose time gives the machine's rates, see `rates`."""
    import numpy as np
    from keras import ops

    rng = np.random.default_rng(0)
    square, line, long = (
        ops.convert_to_tensor(rng.random(n, "float32")) for n in ((sizes.matmul,) * 2, sizes.exp, sizes.read)
    )
    matmul = compiled(lambda a: ops.max(ops.matmul(a, a)))
    exp = compiled(lambda x: ops.sum(ops.exp(x)))
    read = compiled(lambda x: ops.sum(x))
    return {"matmul": lambda: matmul(square), "exp": lambda: exp(line), "read": lambda: read(long)}


def rates(timings, sizes=PROCESSOR):
    """Returns (flop/s of a matrix product, exp/s, bytes/s of reading) from the timings of `probes`."""
    return (
        2 * sizes.matmul**3 / timings["matmul"].median,
        sizes.exp / timings["exp"].median,
        4 * sizes.read / timings["read"].median,
    )


def in_fresh_process(module, row, **environment):
    """Runs `python -m module --row JSON` in a new process, and returns the JSON that it prints last."""
    command = [sys.executable, "-m", module, "--row", json.dumps(row)]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **environment}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{row} failed:\n{result.stderr[-3000:]}")
    return json.loads(result.stdout.splitlines()[-1])


# glibc keeps freed blocks by chance, which moves the peak of one and the same step by half. With a fixed threshold it
# gives them back, and the peak is what the step holds. It costs time, so seconds and memory are measured in different
# processes.
STEADY_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}


def peak_memory():
    """Returns the peak resident MiB of this process.

    On Linux it does not use ru_maxrss, which a child inherits from a larger parent.
    """
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def accelerator():
    """Returns the name of the accelerator that the backend would use, or None."""
    import keras

    if keras.config.backend() == "jax":
        import jax

        device = jax.devices()[0]
        return None if device.platform == "cpu" else device.device_kind
    if keras.config.backend() == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else None
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(devices[0]).get("device_name", "GPU") if devices else None


def peak_device_memory():
    """Returns the peak MiB of this process on the accelerator, or `peak_memory` without one."""
    import keras

    if accelerator() is None:
        return peak_memory()
    if keras.config.backend() == "jax":
        import jax

        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / (1 << 20)
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / (1 << 20)
    import torch

    return torch.cuda.max_memory_allocated() / (1 << 20)


def machine():
    """Returns the accelerator that the backend would use, or the processor."""
    return accelerator() or processor()


def processor():
    """Returns the number of cores and the name of the processor."""
    return f"{os.cpu_count()} cores ({_processor()})"


def _processor():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def milliseconds(seconds):
    """Returns seconds as text in milliseconds, with three digits or all whole ones."""
    return f"{1e3 * seconds:.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.3g}"


def spread(timing):
    """Returns median and quartiles of a dict with "seconds", "low" and "high", in milliseconds."""
    return f"{milliseconds(timing['seconds'])} ({milliseconds(timing['low'])}-{milliseconds(timing['high'])})"


def markdown(lines):
    """Returns a Markdown table of rows of strings. The first row is the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    rows.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(rows)
