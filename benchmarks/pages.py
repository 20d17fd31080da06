"""Renders the tables of README.md, the pages of docs and this folder's README.md from the result files.

python benchmarks/pages.py [--check]

Between `<!-- table: NAME, TITLE -->` and `<!-- / -->` stands a table of `results/NAME.json`, or, of `views.NAME`, what
that function of `views.py` returns; between `<!-- run: NAME -->` and `<!-- / -->` when, where and with what it was run.
`--check` changes nothing, and fails where a page differs.
"""

import argparse
import functools
import pathlib
import re

import results
import views

ROOT = pathlib.Path(__file__).parent.parent
MARKED = re.compile(r"<!-- (table|run): (.+?) -->(.*?)<!-- / -->", re.DOTALL)


def pages():
    """All that may have tables of results."""
    return [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def rendered(text):
    """A page with the tables that the result files have now."""
    return MARKED.sub(_render, text)


def without_results(text):
    """What of a page was written by hand."""
    return MARKED.sub("", text)


def _render(found):
    kind, target, _ = found.groups()
    start = f"<!-- {kind}: {target} -->"
    if kind == "run":
        return f"{start}{results.about(run_of(target))}<!-- / -->"
    return f"{start}\n{results.render(table_of(target))}\n<!-- / -->"


def table_of(target):
    """The table that a page names."""
    if target.startswith("views."):
        return getattr(views, target.removeprefix("views."))(lambda name, title: run_of(name).tables[title])
    name, title = target.split(", ", 1)
    return run_of(name).tables[title]


@functools.cache
def run_of(name):
    """The run of a result file."""
    return results.read(results.FOLDER / f"{name}.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a page differs")
    options = parser.parse_args()
    differing = [page for page in pages() if rendered(page.read_text()) != page.read_text()]
    for page in [] if options.check else differing:
        page.write_text(rendered(page.read_text()))
    print("\n".join(str(page.relative_to(ROOT)) for page in differing) or "All pages show what the result files have.")
    raise SystemExit(1 if options.check and differing else 0)


if __name__ == "__main__":
    main()
