"""The tables of README.md, of the pages of docs and of benchmarks/README.md, rendered from the result files.

python -m benchmarks.lib.pages [--check]

Between `<!-- table: NAME, TITLE -->` and `<!-- / -->` stands a table of `results/NAME.json`, or, of `views.NAME`, what
that function of `views` returns; between `<!-- run: NAME -->` and `<!-- / -->` when, where and with what it was run.
Beside each result file lies `results/NAME.md`, a page of all its tables that is rendered as a whole. `--check` changes
nothing, and fails where a page differs.
"""

import argparse
import functools
import pathlib
import re

from benchmarks.lib import results, views

ROOT = pathlib.Path(__file__).parents[2]
MARKED = re.compile(r"<!-- (table|run): (.+?) -->(.*?)<!-- / -->", re.DOTALL)


def pages():
    """Returns the pages that can have marked tables."""
    return [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def expected():
    """Returns all pages as rendered from the result files, `{path: text}`."""
    files = sorted(results.FOLDER.glob("*.json"))
    whole = {path.with_suffix(".md"): results.page(path.stem, results.read(path)) for path in files}
    return {page: rendered(page.read_text()) for page in pages()} | whole


def differing():
    """Returns the pages of `expected` that differ on the disk or are missing."""
    return {page: text for page, text in expected().items() if not page.exists() or page.read_text() != text}


def rendered(text):
    """Returns a page with its tables rendered from the result files."""
    return MARKED.sub(_render, text)


def without_results(text):
    """Returns the hand-written text of a page."""
    return MARKED.sub("", text)


def _render(match):
    kind, target, _ = match.groups()
    start = f"<!-- {kind}: {target} -->"
    if kind == "run":
        return f"{start}{results.about(run_of(target))}<!-- / -->"
    return f"{start}\n{results.render(table_of(target))}\n<!-- / -->"


def table_of(target):
    """Returns the table that a page names."""
    if target.startswith("views."):
        return views.by_name(target.removeprefix("views."))(lambda name, title: run_of(name).tables[title])
    name, title = target.split(", ", 1)
    return run_of(name).tables[title]


@functools.cache
def run_of(name):
    """Returns the run of a result file."""
    return results.read(results.FOLDER / f"{name}.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a page differs")
    options = parser.parse_args()
    texts = differing()
    for page, text in {} if options.check else texts.items():
        page.write_text(text)
    print("\n".join(str(page.relative_to(ROOT)) for page in texts) or "All pages show what the result files have.")
    raise SystemExit(1 if options.check and texts else 0)


if __name__ == "__main__":
    main()
