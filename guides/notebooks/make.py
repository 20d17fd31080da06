"""Makes a Jupyter notebook of every guide, beside this file. `python -m nox -s guides -- --notebooks` also runs them.

Never edit a notebook: change the guide, and make the notebook again.
"""

import argparse
import pathlib

from guides.notebooks.reader import cells

FOLDER = pathlib.Path(__file__).parent

BACKEND = """\
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow" or "torch"; it must be set before Keras is imported
%matplotlib inline"""

QUICK_TEXT = "**A quick run: every epoch is one batch. It shows that the code runs; its numbers mean nothing.**"
QUICK = """\
import keras

whole_fit = keras.Model.fit
keras.Model.fit = lambda self, *args, **kwargs: whole_fit(self, *args, **(kwargs | {"steps_per_epoch": 1}))"""


def notebook(source, quick=False):
    """Returns a notebook of a guide's source, without outputs. Equal sources give equal notebooks."""
    import nbformat.v4

    make = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    start = [("code", BACKEND), *([("markdown", QUICK_TEXT), ("code", QUICK)] if quick else [])]
    head, *rest = cells(source)
    made = [make[kind](text, id=f"cell-{place}") for place, (kind, text) in enumerate([head, *start, *rest])]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def main():
    """Writes the notebooks and prints their paths."""
    import nbformat

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="an epoch is one batch, to see that the notebooks run")
    quick = parser.parse_args().quick
    for guide in sorted(FOLDER.parent.glob("*.py")):
        path = FOLDER / f"{guide.stem}.ipynb"
        nbformat.write(notebook(guide.read_text(encoding="utf-8"), quick), path)  # which validates it
        print(path)


if __name__ == "__main__":
    main()
