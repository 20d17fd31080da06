"""Every benchmark on labels by people and rules but `real.networks`, one after the other, as the pages show it.

python -m benchmarks.real [--quick] [--data FOLDER] [--cache FOLDER] [--output FOLDER]

A run that was interrupted resumes: finished lines stay in the output folder, and only missing ones are made. All
benchmarks run, also after one that failed. The last lines name the failed ones.

Each benchmark runs in its own process, with one thread for matrix products. With several, the threads of scikit-learn
and of the backend wait for each other, and logistic regression took forty times as long on a busy machine.
"""

import os
import shlex
import subprocess
import sys
import time

from benchmarks.lib import harness
from benchmarks.real import features

WORST = ("--sets", "CIFAR-10N worst")
RUNS = (  # benchmarks and their options
    ("features",),
    ("verified",),
    ("votes", "--seeds", "5"),
    ("joint",),
    ("clean", "--seeds", "5"),
    ("choose",),
    ("annotators",),
    ("issues",),
    ("judge",),
    ("heads",),
    ("finetune", "--size", "4000"),
    ("finetune", *WORST, "--size", "10000", "--rows", "Dense, logits / 5", "full head", "--seeds", "5"),
)
SMALL = ("--quick", "--sets", "TREC")
QUICK = (
    ("features",),
    ("verified",),
    ("votes", "--quick"),
    *((name, *SMALL) for name in ("clean", "choose", "issues", "judge", "finetune")),
    ("annotators", "--quick", "--sets", "youtube"),
    ("joint", "--quick"),
    ("heads", "--quick"),
)


def main():
    """Runs all, and returns the number of failures."""
    parser = harness.parser_of(__doc__, **features.FOLDERS)
    parser.add_argument("--quick", action="store_true", help="few examples, epochs and sets, to see that all run")
    options = parser.parse_args()
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | os.environ
    failed = []
    for name, *own in QUICK if options.quick else RUNS:
        command = [f"benchmarks.real.{name}", *own]
        for option in ("data", "cache", "output"):
            command += [f"--{option}", str(getattr(options, option))]
        print(f"python -m {shlex.join(command)}", flush=True)
        start = time.monotonic()
        code = subprocess.run([sys.executable, "-m", *command], env=environment, check=False).returncode
        print(f"{'failed' if code else 'done'} in {time.monotonic() - start:.0f} s", flush=True)
        failed += [shlex.join(command)] * bool(code)
    print(*(f"failed: {each}" for each in failed), sep="\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
