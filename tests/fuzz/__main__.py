"""Runs the fuzz for some minutes, prints figures, and says which case fails."""

import argparse
import pathlib
import subprocess
import sys

NAMES = ("heads", "configs", "files")
FOLDER = pathlib.Path(".fuzz")  # failing cases, which are tried first the next time


def parse(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of each kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first round of cases (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="kinds of cases (default: all)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def run_inside(name, options):
    """Runs one kind in this process; returns whether no case failed."""
    import keras  # here: the process that starts this one needs no backend

    from tests.fuzz import configs, files, heads, rounds

    fuzz = {"heads": heads.HEADS, "configs": configs.CONFIGS, "files": files.FILES}[name]
    folder = FOLDER / keras.config.backend() / name
    figures = rounds.run(fuzz, 60 * options.minutes, options.seed, folder)
    print(f"{name} on {keras.config.backend()}: {figures}", flush=True)
    return figures.failure is None


def run_outside(name, options):
    """Runs one kind in a process of its own, which a hostile file may end; returns whether no case failed."""
    arguments = ["--minutes", str(options.minutes), "--seed", str(options.seed), "--only", name, "--inside"]
    status = subprocess.run([sys.executable, "-m", "tests.fuzz", *arguments], check=False).returncode
    if status not in (0, 1):
        cases = sorted(FOLDER.glob(f"*/{name}/last_case.txt"), key=lambda path: path.stat().st_mtime)
        print(f"{name}: FAILED, the process ended with status {status}, the last case is in {cases[-1:]}", flush=True)
    return status == 0


def main(arguments=None):
    options = parse(arguments)
    run = run_inside if options.inside else run_outside
    return int(False in [run(name, options) for name in options.only])


if __name__ == "__main__":
    sys.exit(main())
