"""Command line: `python -m keras_het doctor` and `python -m keras_het parity model.keras`."""

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs a command line, by default `sys.argv`, and returns its exit status: 0 for success."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_het", description="Heteroscedastic output layers and label-noise tools for Keras 3."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    text = "check this installation: backend, devices, versions, compilation, and equal numbers"
    commands.add_parser("doctor", help=text, description=text)
    text = "compare the outputs of a model on the installed backends; exit status 0 equal, 1 different, 2 could not run"
    from keras_het.commands import doctor, parity

    parity.add_arguments(commands.add_parser("parity", help=text, description=text))
    options = parser.parse_args(arguments)
    return parity.run(options) if options.command == "parity" else doctor.run()


if __name__ == "__main__":
    sys.exit(main())
