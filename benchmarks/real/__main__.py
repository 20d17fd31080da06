"""Every benchmark on labels by people and rules, one after the other, as the pages show it.

python -m benchmarks.real [--quick] [--data FOLDER] [--cache FOLDER] [--output FOLDER]

A run that was interrupted resumes: each benchmark keeps its lines in the output folder and makes only the missing ones.
All benchmarks run, also after one that failed. The last lines name the failed ones.

Each benchmark runs in its own process, with one thread for matrix products. With several, the threads of scikit-learn
and of the backend wait for each other, and logistic regression took forty times as long on a busy machine.
"""

import os
import pathlib
import subprocess
import sys
import time

from benchmarks.lib import harness
from benchmarks.real import data, weights

HALF = ["CIFAR-10N worst", "CIFAR-10N aggregate", "CIFAR-10N random1", "Fashion-MNIST-H"]
RUNS = [  # quick runs first
    ["verified"],
    ["votes", "--seeds", "5"],
    ["priors"],
    ["joint"],
    ["choose", "--size", "4000", "--seeds", "5"],
    ["annotators"],
    ["issues"],
    ["judge"],
    ["next_labels"],
    ["heads", "--sets", *HALF],
    ["heads", "--sets", "CIFAR-10N worst", "--sizes", "2000", "50000", "--rows", "Dense", "full"],
    ["heads", "--sets", "CIFAR-100N", "--sizes", "45000", "--rows", "Dense", "full"],
    ["finetune", "--size", "4000"],
]
NOT_QUICK = {"verified", "votes"}  # without `--quick`: they take seconds


def main():
    """Runs all, and returns the number of failures."""
    parser = harness.parser_of(__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=data.FOLDER)
    parser.add_argument("--cache", type=pathlib.Path, default=weights.CACHE, help="folder of weights and features")
    parser.add_argument("--quick", action="store_true", help="few examples and epochs, one seed, to see that all run")
    options = parser.parse_args()
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | os.environ
    failed = []
    for name, *arguments in [["features"], *RUNS]:
        more = ["--data", str(options.data)]
        more += ["--cache", str(options.cache)] if name not in NOT_QUICK else []
        more += ["--output", str(options.output)] if name != "features" else []
        more += ["--quick"] if options.quick and name not in {*NOT_QUICK, "features"} else []
        command, start = [f"benchmarks.real.{name}", *arguments, *more], time.monotonic()
        print(f"python -m {' '.join(command)}", flush=True)
        code = subprocess.run([sys.executable, "-m", *command], env=environment, check=False).returncode
        print(f"{'done' if code == 0 else 'failed'} in {time.monotonic() - start:.0f} s", flush=True)
        failed += [" ".join(command)] * (code != 0)
    print(*(f"failed: {each}" for each in failed), sep="\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
