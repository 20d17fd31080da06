"""`python -m benchmarks.demo`: the command line.

python -m benchmarks.demo [--quick] [--seeds N] [--noises NAME ...] [--output FOLDER] [--backend NAME]
"""

import argparse
import os
import subprocess
import sys
import tempfile

from keras_het.base import environment

CACHE = "JAX_COMPILATION_CACHE_DIR"  # JAX reads it when it is imported


def make_parser():
    """Makes the parser of the command line."""
    text = "Trains on digits with three kinds of wrong labels, chooses a method for each, and finds the wrong labels."
    demo = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=text)
    demo.add_argument(
        "--backend",
        choices=environment.BACKENDS,
        help="default: KERAS_BACKEND if set, else the first installed of the three",
    )
    demo.add_argument("--seeds", type=int, help="repetitions, each with its own split and noise (default: 1)")
    demo.add_argument(
        "--noises", nargs="+", metavar="NAME", help="'swapped pairs', 'random flips', 'look-alikes' (default: all)"
    )
    demo.add_argument("--examples", type=int, help="digits with noisy labels (default: 1280, which is the most)")
    demo.add_argument("--epochs", type=int, help="of each training (default: 50, 30 with --quick)")
    demo.add_argument(
        "--output",
        default="keras_het_demo",
        help="folder for the picture, the report and results.json (default: %(default)s)",
    )
    demo.add_argument("--quick", action="store_true", help="half a minute: swapped pairs alone, and fewer trainings")
    return demo


def choose_backend(requested=None):
    """The backend to run on: the one requested, else KERAS_BACKEND, else the first installed.

    Raises:
        ValueError: if it is not one of the three, or not installed.
    """
    installed = environment.installed_backends()
    backend = requested or os.environ.get("KERAS_BACKEND") or next(iter(installed), "jax")
    if backend not in environment.BACKENDS:
        raise ValueError(f"`backend` must be one of {', '.join(environment.BACKENDS)}. Received: backend={backend!r}")
    if backend not in installed:
        raise ValueError(f"`backend` must be installed: {environment.install(backend)}. Received: backend={backend!r}")
    return backend


def main(arguments=None):
    """Runs a command line, `sys.argv` by default, and returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        backend = choose_backend(options.backend)
    except ValueError as error:
        parser.error(str(error))
    os.environ["KERAS_BACKEND"] = backend
    if backend == "jax" and CACHE not in os.environ:
        return run_with_cache(arguments)
    loaded = sys.modules.get("keras")
    if loaded and loaded.config.backend() != backend:  # Keras cannot change its backend: start again with the right one
        return subprocess.call([sys.executable, "-m", "benchmarks.demo", *arguments])
    return run(parser, options)


def run_with_cache(arguments):
    """Starts again, with a folder where JAX keeps what it compiles: the demo makes the same programs many times."""
    with tempfile.TemporaryDirectory() as folder:
        every = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
        command = [sys.executable, "-m", "benchmarks.demo", *arguments]
        return subprocess.call(command, env={**os.environ, **every, CACHE: folder})


def run(parser, options):
    """Checks the options and runs the demo."""
    from benchmarks import demo  # here, not at the top: Keras would load before KERAS_BACKEND is set

    given = {name: getattr(options, name) for name in ("seeds", "noises", "examples", "epochs")}
    settings = demo.QUICK if options.quick else demo.Settings()
    settings = settings._replace(**{name: value for name, value in given.items() if value is not None})
    try:
        demo.check_settings(settings)
    except ValueError as error:
        parser.error(str(error))
    demo.run(settings, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
