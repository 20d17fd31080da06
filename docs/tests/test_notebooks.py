"""The notebooks contain all code, comments and text of the guides."""

import ast
import io
import pathlib
import tokenize

import pytest

from benchmarks.lib import results
from guides.notebooks import reader

GUIDES = pathlib.Path(__file__).parents[2] / "guides"


def code_of(source):
    """Returns the syntax trees of the code of a guide, without its text cells."""
    return [ast.dump(node) for node in ast.parse(source).body if not reader.is_text(node)]


def joined(cells, kind):
    return "\n\n".join(text for cell, text in cells if cell == kind)


def comments(source):
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def missing(source, cells):
    """Returns which kinds of content the cells lack: code, text or comments."""
    lost = set() if code_of(joined(cells, "code")) == code_of(source) else {"code"}
    texts, words = joined(cells, "markdown"), ast.parse(source).body[1:]
    lost |= {"text" for node in words if reader.is_text(node) and node.value.value.strip() not in texts}
    return lost | {"comment" for comment in comments(source) if comment not in joined(cells, "code")}


@pytest.mark.parametrize("guide", sorted(GUIDES.glob("*.py")), ids=lambda guide: guide.stem)
def test_a_notebook_has_all_of_its_guide(guide):
    source = guide.read_text(encoding="utf-8")
    cells = list(reader.cells(source))
    assert missing(source, cells) == set()
    assert cells[0][1].startswith("# ")


SOURCE = '''\
"""
Title: A guide
Description: What it shows.
Seeds: 0, 2
"""

"""
Words before.
"""

# Why it is one.
x = 1


def f():
    """Of a function, and no cell."""


"""
Words between.
"""
f()
'''


def test_the_cells_of_a_guide_by_hand():
    assert list(reader.cells(SOURCE)) == [
        ("markdown", "# A guide\n\nWhat it shows."),
        ("markdown", "Words before."),
        ("code", '# Why it is one.\nx = 1\n\n\ndef f():\n    """Of a function, and no cell."""'),
        ("markdown", "Words between."),
        ("code", "f()"),
    ]


@pytest.mark.planted
@pytest.mark.parametrize(("place", "lost"), [(1, {"text"}), (2, {"code", "comment"}), (4, {"code"})])
def test_a_cell_that_is_lost_is_noticed(place, lost):
    cells = list(reader.cells(SOURCE))
    assert missing(SOURCE, cells) == set()
    assert missing(SOURCE, cells[:place] + cells[place + 1 :]) == lost


@pytest.mark.parametrize("guide", sorted(GUIDES.glob("*.py")), ids=lambda guide: guide.stem)
def test_the_outputs_that_the_site_shows_have_a_picture_and_a_place_in_the_code_of_the_guide(guide):
    run = results.read(GUIDES / "outputs" / f"{guide.stem}.json")
    source = guide.read_text(encoding="utf-8")
    assert run.seeds == reader.seeds(source)
    count = sum(kind == "code" for kind, _ in reader.cells(source))
    assert run.tables["code"] == reader.digest(reader.code_of(source))
    places = set(run.tables) - {"code"}
    assert all(int(place) < count for place in places)
    pictures = [path.stem.rpartition("-")[2] for path in (GUIDES / "outputs").glob(f"{guide.stem}-*.png")]
    assert pictures  # a picture for the index
    assert set(pictures) <= places
