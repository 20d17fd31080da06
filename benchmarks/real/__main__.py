"""Every benchmark on labels by people and rules, one after the other, as the pages show it.

python -m benchmarks.real [--quick] [--data FOLDER] [--cache FOLDER] [--output FOLDER]

A run that was interrupted resumes: finished lines stay in the output folder, and only missing ones are made. All
benchmarks run, also after one that failed. The last lines name the failed ones.

Each benchmark runs in its own process, with one thread for matrix products. With several, the threads of scikit-learn
and of the backend wait for each other, and logistic regression took forty times as long on a busy machine.
"""

import os
import pathlib
import shlex
import subprocess
import sys
import time

from benchmarks.lib import harness
from benchmarks.real import data, weights

HALF = ("CIFAR-10N worst", "CIFAR-10N aggregate", "CIFAR-10N random1", "Fashion-MNIST-H")
TWO = ("--rows", "Dense", "full")
EVERY = ("data", "cache", "output", "quick")
RUNS = (  # benchmark, its own options, and the options of this command that it takes
    ("features", (), ("data", "cache")),
    ("verified", (), ("data", "output")),
    ("votes", ("--seeds", "5"), ("data", "output")),
    ("priors", (), EVERY),
    ("joint", (), EVERY),
    ("choose", ("--size", "4000", "--seeds", "5"), EVERY),
    ("annotators", (), EVERY),
    ("issues", (), EVERY),
    ("judge", (), EVERY),
    ("next_labels", (), EVERY),
    ("heads", ("--sets", *HALF), EVERY),
    ("heads", ("--sets", "CIFAR-10N worst", "--sizes", "2000", "5000", "10000", "50000", *TWO), EVERY),
    ("heads", ("--sets", "CIFAR-100N", "--sizes", "5000", "45000", *TWO), EVERY),
    ("finetune", ("--size", "4000"), EVERY),
)


def main():
    """Runs all, and returns the number of failures."""
    parser = harness.parser_of(__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=data.FOLDER)
    parser.add_argument("--cache", type=pathlib.Path, default=weights.CACHE, help="folder of weights and features")
    parser.add_argument("--quick", action="store_true", help="few examples and epochs, one seed, to see that all run")
    options = parser.parse_args()
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | os.environ
    failed = []
    for name, own, shared in RUNS:
        command = [f"benchmarks.real.{name}", *own]
        for option in shared:
            value = getattr(options, option)
            command += [f"--{option}"] * (value is not False) + [str(value)] * (not isinstance(value, bool))
        print(f"python -m {shlex.join(command)}", flush=True)
        start = time.monotonic()
        code = subprocess.run([sys.executable, "-m", *command], env=environment, check=False).returncode
        print(f"{'failed' if code else 'done'} in {time.monotonic() - start:.0f} s", flush=True)
        failed += [shlex.join(command)] * bool(code)
    print(*(f"failed: {each}" for each in failed), sep="\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
