"""Keeps the printed outputs and figures of the notebooks for the site: `python -m nox -s guides -- --notebooks --keep`.

Each guide gets a result file in `guides/outputs` with date, machine, versions and duration, and a picture for each
figure.
"""

import base64
import datetime
import pathlib

from benchmarks.lib import harness, results
from guides.notebooks.reader import code_of, digest, seeds

FOLDER = pathlib.Path(__file__).parent


def outputs_of(cell):
    """Returns the printed text of a cell that was run, and the PNG bytes of its figures."""
    printed = (output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
    shown = (output.data for output in cell.outputs if "data" in output)
    text = "".join(printed).lstrip("\n").rstrip()
    return text, [base64.b64decode(data["image/png"]) for data in shown if "image/png" in data]


def keep(guide, notebook, folder, commit):
    """Writes the outputs of a guide as `folder/NAME.json` and `NAME-CELL.png`, by the index of the code cell.

    Pass the commit of the guides: after the first output is written, the repository has changes.
    """
    import keras

    for picture in folder.glob(f"{guide.stem}-*.png"):
        picture.unlink()
    source = guide.read_text(encoding="utf-8")
    written = {"code": digest(code_of(source))}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for place, cell in enumerate(code[1:]):  # the first names the backend
        text, figures = outputs_of(cell)
        if len(figures) > 1:
            raise ValueError(f"{guide.name} draws {len(figures)} figures in one cell: put text between them")
        for figure in figures:
            (folder / f"{guide.stem}-{place}.png").write_bytes(figure)
        written |= {str(place): text} if text or figures else {}
    backend = keras.config.backend()
    command = f"python -m nox -s guides -- --notebooks --keep --backend {backend}"
    versions = {name: results.version_of(name) for name in ("keras", backend)}
    run = results.this_run(command, written, seeds(source), versions, harness.processor())
    results.write(folder / f"{guide.stem}.json", run._replace(commit=commit, note=[took(code)]))


def took(code):
    """Returns the duration of a notebook's cells as text, by the times in their metadata."""
    times = [datetime.datetime.fromisoformat(time) for cell in code for time in cell.metadata.execution.values()]
    seconds = (max(times) - min(times)).total_seconds()
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def main():
    """Keeps the outputs of all notebooks that were run."""
    import nbformat

    folder, commit = FOLDER.parent / "outputs", results.commit()
    folder.mkdir(exist_ok=True)
    for guide in sorted(FOLDER.parent.glob("*.py")):
        keep(guide, nbformat.read(FOLDER / f"{guide.stem}.ipynb", as_version=4), folder, commit)


if __name__ == "__main__":
    main()
