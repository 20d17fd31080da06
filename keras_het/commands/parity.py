"""Command `python -m keras_het parity`: compares a model on the installed backends, or recordings in files."""

import argparse
import json
import pathlib
from typing import Any

from keras_het.base.environment import BACKENDS
from keras_het.base.validation import check_number
from keras_het.parity.comparison import Comparison
from keras_het.parity.judge import compare
from keras_het.parity.processes import compare_file, record_file
from keras_het.parity.recording import Recording

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
    verb, *files = options.files
    plan = {"steps": options.steps, "batch_size": options.batch_size}
    more = {"tolerance": options.tolerance, "skip": options.skip}
    try:
        check_number("tolerance", options.tolerance, above=0.0)
        if verb == "record":
            return _record(options, files, plan)
        if verb == "compare":
            result = compare(*map(Recording.load, files), **more)
        elif files:
            raise ValueError(f"The command needs one model. Received: {', '.join(options.files)}")
        else:
            more |= {"modules": options.modules, "plan": plan}
            result = compare_file(verb, options.backends, options.data, **more)
        answer, content = f"\n{result.text(all_rows=options.all)}", _as_json(result)
    except ValueError as error:
        answer, content = str(error), {"status": 2, "answer": str(error)}
    print(answer)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    return content["status"]


def _record(options: argparse.Namespace, files: list[str], plan: dict[str, Any]) -> int:
    if len(files) != 1 or not options.out:
        raise ValueError("Recording needs one model and the file to write: record MODEL.keras --out FILE.npz")
    recording = record_file(files[0], options.out, options.label, options.data, modules=options.modules, plan=plan)
    failures = [f"Failed: {part}: {text}" for part, text in recording.failures.items()]
    print(*failures, *(f"Note: {note}" for note in recording.notes), f"Recorded in {options.out}", sep="\n")
    return 2 if failures else 0


def _as_json(result: Comparison) -> dict[str, Any]:
    numbers = ("difference", "limit", "rounding", "blur")
    rows = [row._asdict() | {name: min(getattr(row, name), 1e308) for name in numbers} for row in result.rows]
    rows = [row | {"values": list(map(repr, row["values"]))} for row in rows]
    names = ("unjudged", "notes", "failures", "versions")
    content = {name: getattr(result, name) for name in names}
    return {"status": result.status(), "answer": result.answer(), "backends": result.labels, "rows": rows, **content}
