"""Command `python -m keras_het parity`: compares a model on the installed backends, or recordings in files."""

import argparse
import json
import pathlib
from typing import Any

from keras_het.base.environment import BACKENDS
from keras_het.base.validation import check_number
from keras_het.parity.comparison import Comparison
from keras_het.parity.processes import compare_file, compare_recordings, record_file

USAGE = """python -m keras_het parity MODEL.keras [options]
       python -m keras_het parity record MODEL.keras --out FILE.npz [--label TEXT] [options]
       python -m keras_het parity compare FILE.npz FILE.npz ... [options]"""
EPILOG = """Exit status: 0 the backends agree; 1 they differ, or the model is not deterministic; 2 a backend could not
run a part; 3 they agree, but rounding hides a fault of ten percent in some numbers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to a parser."""
    parser.usage, parser.epilog = USAGE, EPILOG
    parser.add_argument("files", nargs="+", metavar="MODEL", help="model file, .keras, or recordings to compare, .npz")
    parser.add_argument("--data", help=".npz file with x, y and sample_weight (several inputs: x.NAME, or x:0 and x:1)")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, help="backends to compare (default: all installed)")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="difference that counts as equal (default: 1e-5)")
    parser.add_argument("--steps", type=int, help="training steps (default: 3)")
    parser.add_argument("--batch-size", type=int, help="rows of a training step (default: all)")
    parser.add_argument("--skip", action="append", default=[], metavar="LAYER", help="layer that is not compared")
    parser.add_argument("--all", action="store_true", help="print every row, in the order of the model")
    parser.add_argument("--json", help="file to write the result to")
    parser.add_argument("--out", help="file of the recording (record)")
    parser.add_argument("--label", default="", help="name of the recording in tables (record)")
    parser.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE", help="module with your own layers"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the comparison, and returns the exit status."""
    for file in filter(None, (options.json, options.out)):
        if not pathlib.Path(file).parent.is_dir():
            print(f"Folder not found: {pathlib.Path(file).parent}")
            return 2
    try:
        check_number("tolerance", options.tolerance, above=0.0)
        result = _result(options)
        if result is None:
            return 0
        answer, content = f"\n{result.text(all_rows=options.all)}", _as_json(result)
    except ValueError as error:
        answer, content = str(error), {"status": 2, "answer": str(error)}
    print(answer)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    return content["status"]


def _result(options: argparse.Namespace) -> Comparison | None:
    """Returns the comparison, or None after a recording."""
    plan = {"steps": options.steps, "batch_size": options.batch_size}
    verb, files = options.files[0], options.files[1:]
    if verb == "record":
        if len(files) != 1 or not options.out:
            raise ValueError("Recording needs one model and the file to write: record MODEL.keras --out FILE.npz")
        for note in record_file(files[0], options.out, options.label, options.data, modules=options.modules, plan=plan):
            print(f"Note: {note}")
        print(f"Recorded in {options.out}")
        return None
    if verb == "compare":
        return compare_recordings(files, options.tolerance, options.skip)
    if files:
        raise ValueError(f"The command needs one model. Received: {', '.join(options.files)}")
    return compare_file(
        verb, options.backends, options.data, options.tolerance, modules=options.modules, skip=options.skip, plan=plan
    )


def _as_json(result: Comparison) -> dict[str, Any]:
    numbers = ("difference", "limit", "rounding")
    rows = [row._asdict() | {name: min(getattr(row, name), 1e308) for name in numbers} for row in result.rows]
    rows = [row | {"values": list(map(repr, row["values"]))} for row in rows]
    names = ("first_layer", "unjudged", "notes", "failures", "versions")
    content = {name: getattr(result, name) for name in names}
    return {"status": result.status(), "answer": result.answer(), "backends": result.labels, "rows": rows, **content}
