"""The suspects with their texts and the columns of a frame: shown as text whatever they hold, and never a formula."""

import csv
import html
import re

import numpy as np
import pandas
import pytest

from keras_het.labels import apply_corrections
from keras_het.labels.reports import page, report
from keras_het.labels.reports.examples import MAX_CELL_LETTERS, Column, columns_of, thumbnails
from keras_het.labels.reports.figures import Picture
from tests.labels.reports.models import EXAMPLES, make_data, plain
from tests.labels.reports.test_page import Page

pytestmark = pytest.mark.once

X, Y = make_data()
TEXTS = [
    '<script>alert(1)</script><img src=x onerror="alert(2)">', "\"'--></bdi></td></table><h1>out</h1>",
    "\u202ereversed\x00", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\U0001f469\u200d\U0001f680 e\u0301\u0301\u0301", "=1+1; -2", "<b>" + "x" * 1_000_000, "", None,
    b"of TensorFlow \xff",
]  # fmt: skip
NO_TEXTS = "`texts` must be texts, or None for a missing text. Use map(str, texts) for other values. Received:"


@pytest.fixture(scope="module", autouse=True)
def without_figures():
    """They take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "reliability_diagram", lambda calibration: Picture("", ""))
        yield


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A page of ten suspects with hostile texts, beside a column of them with a hostile name."""
    path, texts = tmp_path_factory.mktemp("report"), TEXTS * 12
    columns = {'"><script>alert(3)</script>': np.array(texts, object), "-2": -np.arange(EXAMPLES) / 3}
    columns |= {f"=c{number}": np.arange(EXAMPLES) for number in range(60)}
    text = report(plain(), X, Y, path=path, texts=texts, frame=pandas.DataFrame(columns)).read_text("utf-8")
    with (path / "labels.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    return text, rows


def test_hostile_texts_and_columns_are_text(hostile):
    parsed = Page(hostile[0])
    tags = [tag for tag, _ in parsed.tags]
    assert tags.count("script") == 1
    assert tags.count("img") == 1  # the figure
    assert not {"b", "iframe"} & set(tags)
    assert tags.count("h1") == 1
    assert tags.count("table") == tags.count("tbody") == hostile[0].count("</table>")
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert set(TEXTS[:6]) < set(parsed.cells)
    assert "alert(3)" in hostile[0]
    assert len(hostile[0]) < 200_000  # of twice a million letters


def test_texts_that_turn_text_around_or_are_long_end_in_their_cell(hostile):
    places = [found.start() for found in re.finditer("\u202e", hostile[0])]
    assert len(places) == 2
    assert all(hostile[0][place - 5 : place] == "<bdi>" for place in places)
    # A long text ends with an ellipsis.
    assert f"<bdi>{html.escape(TEXTS[6][:MAX_CELL_LETTERS])}…</bdi>" in hostile[0]


def test_the_first_columns_are_shown_and_numbers_sort(hostile):
    head = next(line for line in hostile[0].splitlines() if line.startswith("<thead>") and "Score" in line)
    assert len(re.findall("<th[ >]", head)) == 5 + 8
    assert 'data-value="-1.0"><bdi>-1</bdi>' in hostile[0]
    assert 'data-value="-0.3333333333333333"><bdi>-0.333333</bdi>' in hostile[0]


def test_the_table_of_labels_has_the_same_columns_and_no_formula(hostile):
    head, *rows = hostile[1]
    assert head[6:10] == ["corrected", "x: Text", 'x: "><script>alert(3)</script>', "x: -2"]
    assert len(head) == 7 + 40
    of_index = {int(row[0]): row[7:] for row in rows}
    assert of_index[5][:4] == ["'=1+1; '-2", "'=1+1; '-2", str(-5 / 3), "5"]
    assert [of_index[place][0] for place in (0, 7, 8, 9)] == [TEXTS[0], "", "", "of TensorFlow \ufffd"]
    assert len(of_index[6][0]) == MAX_CELL_LETTERS


def test_the_next_report_knows_its_own_columns_and_keeps_the_corrections(tmp_path):
    path = tmp_path / "labels.csv"
    report(
        plain(),
        X,
        Y,
        path=tmp_path,
        texts=["two\nlines, x"] * EXAMPLES,
        frame=pandas.DataFrame({"corrected": Y, "index": Y}),
    )
    lines = list(csv.reader(path.read_text("utf-8-sig").splitlines(keepends=True)))
    (row,) = [line for line in lines if line[0] == "3"]
    row[6] = "2"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=";").writerows(lines)
    report(plain(), X, Y, path=tmp_path)
    assert path.read_text("utf-8-sig").startswith("index,label,suggested,score,is_issue,kind,corrected\n")
    assert apply_corrections(Y, tmp_path)[3] == 2 != Y[3]
    path.write_text(path.read_text("utf-8-sig").replace("corrected\n", "corrected,x: Text,my notes\n"))
    with pytest.raises(ValueError, match="which no report wrote in this form"):
        report(plain(), X, Y, path=tmp_path, texts=["a"] * EXAMPLES)


@pytest.mark.parametrize(("value", "shown", "order", "written"), [
    (123456.789, "123457", "123456.789", 123456.789),
    (np.float32(0.1), "0.1", "0.10000000149011612", np.float32(0.1)),
    (np.int64(-1234567), "-1234567", "-1234567.0", -1234567),
    (float("-inf"), "-inf", "-Infinity", float("-inf")),
    (float("nan"), None, "Infinity", ""),
    (None, None, "Infinity", ""),
    (True, "True", "1.0", True),
])  # fmt: skip
def test_numbers_are_short_in_the_page_and_whole_in_the_table(value, shown, order, written):
    column = Column("a", [value], is_numeric=True)
    assert (column.page_text(0), column.sort_key(0), column.table_value(0)) == (shown, order, written)


@pytest.mark.parametrize(("value", "text"), [
    (np.arange(3), "[0 1 2]"),
    ([None], "[None]"),
    (np.datetime64("nat", "s"), None),
    (("a", 1), "('a', 1)"),
    (2.0, "2"),
    (" ", " "),
])  # fmt: skip
def test_other_values_are_shown_as_python_writes_them(value, text):
    assert Column("a", [value]).page_text(0) == text


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 1), (6, 5, 3), (6, 5, 4)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_pictures_of_any_range_become_thumbnails(shape, dtype):
    images = (np.arange(np.prod(shape)).reshape(1, *shape) % 200).astype(dtype)
    assert thumbnails(images, [0])[0].startswith("data:image/png;base64,")
    with pytest.raises(ValueError, match="`images` must be"):
        thumbnails(np.zeros((1, 6, 5, 2)), [0])


@pytest.mark.parametrize("texts", [np.array(["a", "b"]), ["a", "b"], ("a", "b"), np.array([[b"a"], ["b"]], object)])
def test_inputs_that_are_texts_are_shown_unasked(texts):
    (column,) = columns_of(texts, [0, 1])
    assert (column.title, column.page_text(0), column.page_text(1)) == ("Text", "a", "b")
    assert columns_of(texts, [0, 1], texts=["c", "d"])[0].page_text(0) == "c"


@pytest.mark.parametrize("x", [X, list(X), {"a": X}, np.array([1, None], object), [1, 2], X.astype("float16")])
def test_other_inputs_are_not(x):
    assert columns_of(x, Y) == []


def test_a_frame_is_shown_unasked_with_an_index_that_is_no_count():
    frame = pandas.DataFrame({"a": [0.5, 1.5], ("b", 1): ["c", "d"]})
    assert [column.title for column in columns_of(frame, [0, 1])] == ["a", "('b', 1)"]
    named = columns_of(X[:2], [0, 1], frame=pandas.DataFrame({"a": [0.5, 1.5]}, index=[1, 0]))
    assert [column.title for column in named] == ["index", "a"]
    assert named[0].page_text(0) == "1"


@pytest.mark.parametrize(("given", "message"), [
    ({"texts": ["a"] * 3}, "`texts` must have a value for each of the 2 examples. Received: 3"),
    ({"frame": pandas.DataFrame({"a": [1, 2, 3]})},
     "`frame` must have a value for each of the 2 examples. Received: 3"),
    ({"frame": {"a": [1, 2]}}, "`frame` must be a pandas frame: pandas.DataFrame(frame). Received: a dict"),
    ({"texts": ["a", 5]}, f"{NO_TEXTS} a int at [1]"),
    ({"texts": [["a"], "b"]}, f"{NO_TEXTS} a list at [0]"),
    ({"texts": "ab"}, "`texts` must be a list, an array or a column, with a text for each example. Received: a str"),
    ({"texts": np.array([["a", "b"]] * 2)},
     "`texts` must be a list, an array or a column, with a text for each example. Received: a ndarray"),
])  # fmt: skip
def test_what_is_not_of_the_examples_is_refused(given, message):
    with pytest.raises(ValueError) as error:
        columns_of(X[:2], [0, 1], **given)
    assert str(error.value) == message


def test_columns_of_pandas_are_paired_by_their_index():
    y = pandas.Series([0, 1], index=["r", "s"])
    frame = pandas.DataFrame({"n": pandas.array([1, None], "Int64"), "c": pandas.Categorical(["x", None])}, y.index)
    frame = frame.assign(t=pandas.to_datetime(["2026-01-02", None]), s=pandas.array(["a", None], "string"))
    found = columns_of(X[:2], y, texts=frame.s, frame=frame)
    assert [column.title for column in found] == ["Text", "index", "n", "c", "t", "s"]
    assert [column.is_numeric for column in found] == [False, False, True, False, False, False]
    assert [column.page_text(0) for column in found] == ["a", "r", "1", "x", "2026-01-02", "a"]
    assert [column.page_text(1) for column in found] == [None, "s", None, None, None, None]
    for name, other in {"texts": frame.s[::-1], "frame": frame[::-1]}.items():
        with pytest.raises(ValueError, match=rf"`{name}` must have the index of `y`: .* Received: 's' at \[0\]"):
            columns_of(X[:2], y, **{name: other})
