"""Executes the entries of the gallery, each in an empty folder: `python -m nox -s gallery` calls it on every backend.

python -m guides.gallery.lib.run [NAME ...] [--keep]

With `--keep` it writes into `guides/gallery/outputs` what the site shows: for each entry a result file with the text
that was printed, and a picture of the figure or the page that was written.
"""

import argparse
import contextlib
import io
import os
import pathlib
import tempfile
import time

from benchmarks.lib import harness, results
from guides.gallery.lib import entries
from guides.notebooks.reader import digest

COMMAND = "python -m nox -s gallery -- --keep"
WINDOW = {
    "viewport": {"width": 1000, "height": 1450},
    "device_scale_factor": 0.75,
}
COLORS = 64  # of a picture: a third of the size, and no difference that one sees


def execute(entry, folder):
    """Runs an entry in a folder, which gets the files that it writes, and returns what it prints."""
    import matplotlib.pyplot as plt

    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(
            compile(entry.code, f"{entry.name}.py", "exec"),
            {"__name__": "__main__"},
        )
    plt.close("all")
    return printed.getvalue().strip()


def keep(entry, printed, folder, commit, outputs=entries.OUTPUTS):
    """Writes the result file of an entry, and its picture if it has drawn one or written a page.

    `commit` is the name of the commit before the first output changed.
    """
    import keras

    for page in folder.rglob("*.html"):
        photograph(page, folder / f"{entry.name}.png")
    (outputs / f"{entry.name}.png").unlink(missing_ok=True)
    for figure in folder.glob("*.png"):
        shrink(figure, outputs / f"{entry.name}.png")
    versions = {name: results.version_of(name) for name in ("keras", keras.config.backend())}
    written = {"printed": printed, "code": digest(entry.code)}
    run = results.this_run(COMMAND, written, entry.seeds, versions, harness.processor())
    results.write(outputs / f"{entry.name}.json", run._replace(commit=commit))


def photograph(page, path):
    """Writes the top of a page as a picture, by the Chromium that `CHROMIUM` names, or playwright's own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or None,
            args=["--no-sandbox"],
        )
        window = browser.new_page(**WINDOW)
        window.goto(page.resolve().as_uri())
        window.screenshot(path=path)
        browser.close()


def shrink(figure, path):
    """Writes a picture with few colours."""
    from PIL import Image

    with Image.open(figure) as image:
        image.convert("RGB").quantize(COLORS).save(path, optimize=True)


def main():
    """Runs the entries that are named, or all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="of an entry, such as find_issues",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="write the outputs that the site shows",
    )
    options = parser.parse_args()
    commit = results.commit()
    names = options.names or [path.stem for path in sorted(entries.FOLDER.glob("*.py"))]
    for name in names:
        entry, start = (
            entries.read(entries.FOLDER / f"{name}.py"),
            time.perf_counter(),
        )
        with tempfile.TemporaryDirectory() as folder:
            printed = execute(entry, folder)
            print(
                f"{name:<24}{time.perf_counter() - start:5.1f} s",
                flush=True,
            )
            if options.keep:
                keep(entry, printed, pathlib.Path(folder), commit)


if __name__ == "__main__":
    main()
