"""`python -m keras_het doctor`: the command line."""

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs a command line, `sys.argv` by default, and returns its exit status: 0 if all is well."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_het", description="Classification under noisy labels in Keras 3."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    text = "say whether all works here: backend, devices, versions, compilation, and equal numbers"
    commands.add_parser("doctor", help=text, description=text)
    parser.parse_args(arguments)

    from keras_het.commands import doctor

    return doctor.run()


if __name__ == "__main__":
    sys.exit(main())
