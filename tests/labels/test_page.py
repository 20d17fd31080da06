"""The page and table of a report run nothing in a browser or spreadsheet, and corrections come back as written."""

import csv
import html
import html.parser
import io
import re
import sys

import numpy as np
import pandas
import pytest

from keras_het.labels import apply_corrections, find_issues, report
from keras_het.labels.issues.corrections import MAX_CELL_LETTERS, safe_cell
from keras_het.labels.issues.page import _thumbnail, default_examples
from tests.common import refuses

pytestmark = pytest.mark.once

COUNT, WRONG = 120, 10
TRUE = np.arange(COUNT) % 4
Y = np.where(np.arange(COUNT) < WRONG, (TRUE + 1) % 4, TRUE)
P = 0.88 * np.eye(4)[TRUE] + 0.03
HOSTILE = ["<script>alert(1)</script>", '=HYPERLINK("http://x","y")', "$\\frac{'\"&", "\u202ereversed\x07"]
TEXTS = [
    '<img src=x onerror="alert(2)">', "\"'--></bdi></td></table><h1>out</h1>", "\ud800 alone", "=1+1; -2",
    "<b>" + "x" * 1_000_000, "", None, b"of TensorFlow \xff", "two\nlines", 7,
]  # fmt: skip


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.is_inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "td":
            self.cells.append("")
            self.is_inside = True

    def handle_endtag(self, tag):
        self.is_inside = self.is_inside and tag != "td"

    def handle_data(self, data):
        if self.is_inside:
            self.cells[-1] += data


def lines_of(folder):
    with (folder / "labels.csv").open(newline="", encoding="utf-8-sig") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    frame = pandas.DataFrame({'"><script>alert(3)</script>': pandas.Series(TEXTS * 12, dtype=object)})
    frame = frame.assign(**{"-2": -np.arange(COUNT) / 3}, **{f"=c{number}": 1 for number in range(60)})
    images = np.random.default_rng(0).integers(0, 256, size=(COUNT, 6, 5, 3)).astype("uint8")
    page = report(find_issues(P, Y), folder, class_names=HOSTILE, examples=frame, images=images, title="\ud800<b>")
    return page.read_text("utf-8"), lines_of(folder)


def test_any_text_of_the_page_is_text_and_ends_in_its_cell_and_the_page_loads_nothing(hostile):
    page = Page(hostile[0])
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "b", "iframe", "link"} & {*tags}
    assert (tags.count("h1"), tags.count("img"), tags.count("table")) == (1, WRONG, 2)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert {*HOSTILE[:3], *TEXTS[:2], "? alone", "=1+1; -2", "", "of TensorFlow \ufffd", "7"} < {*page.cells}
    places = [match.start() for match in re.finditer("\u202e", hostile[0])]
    assert places
    assert all(hostile[0][place - 5 : place] == "<bdi>" for place in places)  # it would turn its line around
    assert f"<bdi>{html.escape(TEXTS[4][:MAX_CELL_LETTERS])}</bdi>" in hostile[0]
    assert len(hostile[0]) < 100_000
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in hostile[0]
    sources = [a[name] for _, a in page.tags for name in ("src", "srcset", "href") if name in a]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "url(" not in hostile[0]


def test_the_page_says_how_many_labels_and_which_pairs(tmp_path):
    """The numbers are those of the planted errors, and no sentence names a kind of noise."""
    text = report(find_issues(P, Y), tmp_path, class_names=["ant", "bee", "cat", "dog"]).read_text()
    assert "disagrees with <strong>10 of 120 labels</strong> (8.3%). It flags 10 of them as issues." in text
    assert "A pair can be a model error" in text
    cells = Page(text).cells
    pairs = {tuple(cells[start : start + 3]) for start in range(0, 12, 3)}
    assert pairs == {("bee", "ant", "3"), ("cat", "bee", "3"), ("dog", "cat", "2"), ("ant", "dog", "2")}
    assert not re.search("class-dependent|instance-dependent|symmetric|none found|labels.clean|next step", text)
    text = report(find_issues(P, TRUE), tmp_path / "new").read_text()
    assert "disagrees with <strong>0 of 120 labels</strong> (0.0%). It flags 0 of them as issues." in text
    assert "The least probable labels" in text
    assert text.count("<tr>") == 1 + COUNT


def test_the_table_has_every_label_all_columns_and_no_formula(hostile):
    head, *lines = hostile[1]
    titles = ["index", "label", "suggested", "score", "is_issue", "corrected"]
    assert head[:8] == [*titles, 'x: "><script>alert(3)</script>', "x: -2"]
    assert len(head) == 6 + 62
    assert sorted(int(line[0]) for line in lines) == list(range(COUNT))
    assert {line[1] for line in lines} == {HOSTILE[0], "'" + HOSTILE[1], HOSTILE[2], HOSTILE[3]}
    assert sum(int(line[4]) for line in lines) == WRONG
    scores = [float(line[3]) for line in lines]
    assert scores == sorted(scores)
    texts = {int(line[0]): line[6] for line in lines}
    expected = ["? alone", "'=1+1; '-2", TEXTS[4][:MAX_CELL_LETTERS], "", "", "of TensorFlow \ufffd", "two\nlines", "7"]
    assert [texts[row] for row in range(2, 10)] == expected
    assert float(next(line[7] for line in lines if line[0] == "5")) == -5 / 3


@pytest.mark.parametrize(("name", "cell"), [
    *((f"{start}1+1", f"'{start}1+1") for start in "=+-@\t\r\n"),
    *(("a;=1+1", "a;'=1+1"), (" =1", " '=1"), ("\uff1d1", "'\uff1d1"), ("a\t@x|+2", "a\t'@x|'+2")),
    *(("a - b; c-d", "a - b; c-d"), (-1, -1), (np.int64(-3), -3), ("a=b", "a=b"), (2.5, 2.5), (None, "None")),
])  # fmt: skip
def test_what_starts_a_formula_in_a_cell_is_quoted_and_nothing_else(name, cell):
    assert safe_cell(name) == cell


def test_the_next_report_keeps_the_corrections(tmp_path):
    """A spreadsheet saved them with ;. Corrections of other labels stop the report and stay."""
    names, path = ["ant", "bee", "cat", "dog"], tmp_path / "labels.csv"
    report(find_issues(P, Y), tmp_path, class_names=names)
    lines = lines_of(tmp_path)
    next(line for line in lines if line[0] == "3")[5] = "dog"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=";").writerows(lines)
    corrected = np.where(np.arange(COUNT) == 3, 3, Y)
    for labels in (Y, corrected):
        report(find_issues(P, labels), tmp_path, class_names=names)
        assert path.read_text("utf-8-sig").startswith("index,label,suggested,")
        np.testing.assert_array_equal(apply_corrections(Y, tmp_path, names), corrected)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="`path` must be a table of these labels"):
        report(find_issues(P, TRUE), tmp_path, class_names=names)
    assert path.read_bytes() == before


def test_the_index_of_a_frame_is_in_issues_and_report(tmp_path):
    rows = [f"row {number}" for number in range(COUNT)]
    y = pandas.Series(Y, rows)
    issues = find_issues(pandas.DataFrame(P, rows), y)
    assert issues.to_frame().columns.tolist() == ["label", "suggested", "score", "is_issue"]
    assert issues.to_frame().loc[rows].label.tolist() == Y.tolist()
    assert {*issues.to_frame().index[:WRONG]} == {*rows[:WRONG]}
    texts = pandas.Series([f"text of {row}" for row in rows], rows)
    text = report(issues, tmp_path, examples=texts).read_text()
    assert re.search(r"<bdi>row 7</bdi></td><td><bdi>text of row 7</bdi>", text)
    assert lines_of(tmp_path)[0][6:] == ["x: example", "x: text"]
    assert all(line[6:] == [f"row {line[0]}", f"text of row {line[0]}"] for line in lines_of(tmp_path)[1:])
    np.testing.assert_array_equal(apply_corrections(y, tmp_path), Y)
    with pytest.raises(ValueError, match=r"`examples` must have the index of `issues`: .*Received: 'row 119' at \[0\]"):
        report(issues, tmp_path, examples=texts[::-1])


def test_missing_values_of_any_type_are_empty_cells(tmp_path):
    frame = pandas.DataFrame({"n": pandas.array([1, None], "Int64"), "c": pandas.Categorical(["x", None])})
    frame = frame.assign(t=pandas.to_datetime(["2026-01-02", None]), s=["a", None], f=[0.123456, np.nan])
    page = report(find_issues([[0.9, 0.1], [0.2, 0.8]], [0, 1]), tmp_path, examples=frame)
    head, *lines = lines_of(tmp_path)
    assert head[6:] == ["x: n", "x: c", "x: t", "x: s", "x: f"]
    assert sorted(line[6:] for line in lines) == [[""] * 5, ["1", "x", "2026-01-02 00:00:00", "a", "0.123456"]]
    assert "<bdi>0.1235</bdi>" in page.read_text()


@pytest.mark.parametrize(("arguments", "message"), [
    ({"examples": ["a"] * 3}, "`examples` must have a value for each of the 120 examples"),
    ({"images": np.zeros((119, 4, 4))}, "`images` must have a value for each of the 120 examples"),
    ({"images": np.zeros((COUNT, 4, 4, 2))}, "`images` must be (N, H, W) or (N, H, W, C) with C 1, 3 or 4"),
    ({"class_names": ["a", "b"]}, "`class_names` must be a sequence with a name for each of the 4 classes"),
    ({"path": __file__}, "`path` must be a folder. Received: "),
    ({"issues": P}, "`issues` must be the result of `find_issues`, or `result.issues`. Received: a ndarray"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_before_a_file_is_written(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        report(**{"issues": find_issues(P, Y), "path": tmp_path / "new", **arguments})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 1), (6, 5, 3), (6, 5, 4)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_pictures_of_any_range_become_thumbnails(shape, dtype):
    assert _thumbnail((np.arange(np.prod(shape)).reshape(shape) % 200).astype(dtype)).startswith("data:image/png;")


@pytest.mark.parametrize(("x", "name"), [
    (np.zeros((2, 4, 4, 3)), "images"), (np.array(["a", "b"]), "examples"), (["a", "b"], "examples"),
    (np.array([[b"a"], ["b"]], object), "examples"), (np.zeros((2, 3)), None), ({"a": np.zeros(2)}, None),
    (np.array([1, None], object), None), (np.zeros((2, 4, 4, 2)), None), ([np.zeros(2)], None),
])  # fmt: skip
def test_images_and_texts_are_shown_unasked(x, name):
    assert [*default_examples(x)] == [name] * (name is not None)


def test_without_pillow_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match="A report with images needs pillow, which is not installed"):
        report(find_issues(P, Y), tmp_path, images=np.zeros((COUNT, 4, 4)))


NAMES = ["cat", "dog", "-1", "a;b"]
LABELS, SCORES = np.array([0, 1, 2, 3, 0, 1]), np.full((6, 4), 0.25)


def table(folder, corrections, names=NAMES):
    file = report(find_issues(SCORES, LABELS), folder, class_names=names).with_name("labels.csv")
    frame = pandas.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8-sig").set_index("index")
    cells = frame.label.copy()
    for row, label in corrections.items():
        frame.loc[str(row), "corrected"] = cells[str(LABELS.tolist().index(label))]
    return frame.to_csv(lineterminator="\r\n").encode("utf-8-sig")


def saved(content, separator=",", mark=True, ending="\r\n", quoting=csv.QUOTE_MINIMAL):
    rows, file = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")), io.StringIO(newline="")
    csv.writer(file, delimiter=separator, lineterminator=ending, quoting=quoting).writerows(rows)
    return file.getvalue().encode("utf-8-sig" if mark else "utf-8")


@pytest.mark.parametrize("arguments", [
    {},
    {"separator": ";", "ending": "\n"},
    {"separator": "\t", "mark": False},
    {"mark": False, "ending": "\n\n", "quoting": csv.QUOTE_ALL},
])  # fmt: skip
@pytest.mark.parametrize("names", [NAMES, HOSTILE, ["Bär", "\ud800", "=1", "a\nb"], range(4)])
def test_corrections_come_back_as_they_were_written(names, arguments, tmp_path):
    (tmp_path / "labels.csv").write_bytes(saved(table(tmp_path, {3: 0, 0: 2}, names), **arguments))
    for labels in (LABELS, [2, 1, 2, 0, 0, 1]):  # as they were, which stay, and corrected already
        assert apply_corrections(labels, tmp_path, names).tolist() == [2, 1, 2, 0, 0, 1]
    assert LABELS.tolist() == [0, 1, 2, 3, 0, 1]


def write(path, *lines, columns="index,label,corrected"):
    path.write_text("\n".join([columns, *lines]))
    return path


CORRECTED = [("2, -1 ,dog", 1), ("2,'-1,-1", 2), ("2,-1,'-1", 2), ("2,-1,a;b", 3), ("2,-1,", 2), ("2,-1", 2)]


@pytest.mark.parametrize(("line", "corrected"), CORRECTED)
def test_a_person_may_write_a_name_as_it_is_or_as_the_table_has_it(line, corrected, tmp_path):
    """And sort the lines, leave some out, or add columns."""
    path = write(tmp_path / "mine.csv", f"mine,{line}", "", "mine,0,cat,dog", columns="notes,index,label,corrected")
    assert apply_corrections(LABELS, path, dict(enumerate(NAMES))).tolist() == [1, 1, corrected, 3, 0, 1]


def test_classes_are_numbers_or_names_in_any_order_also_further_ones_but_two_of_one_name(tmp_path):
    path = write(tmp_path / "labels.csv", "1,1,3")
    assert apply_corrections(LABELS, path).tolist() == [0, 3, 2, 3, 0, 1]
    with pytest.raises(ValueError, match=r"'0', '1', '2', '3'\. Received: '4' in row 2 of"):
        apply_corrections(LABELS, write(path, "1,1,4"))
    assert apply_corrections(LABELS, path, range(5))[1] == 4
    path = write(tmp_path / "labels.csv", "1,dog,owl")
    assert apply_corrections(["cat", "dog", "cat"], path, ["owl", "dog", "cat"]).tolist() == ["cat", "owl", "cat"]
    with pytest.raises(ValueError, match="`class_names` must be 'cat', 'dog' in any order, the names in `labels`"):
        apply_corrections(["cat", "dog", "cat"], path, ["owl", "dog"])
    path = write(tmp_path / "labels.csv", "1,a,b", "0,a,")
    assert apply_corrections([0, 1], path, ["a", "a", "b"]).tolist() == [0, 2]
    with refuses(r"the name of one class in the column `corrected`: 'a', 'b'\. Received: 'a' in row 2"):
        apply_corrections([0, 2], write(path, "1,b,a"), ["a", "a", "b"])


@pytest.mark.parametrize(("lines", "text"), [
    (["0,cat,", "1,dog,wolf"], "one class in the column `corrected`: 'cat', 'dog', .*. Received: 'wolf' in row 3"),
    (["1,dog,cat", "6,cat,"], r"each index in \[0, 6\) once. Received: '6' in row 3"),
    (["1,dog,cat", "", "1,dog,cat"], r"each index in \[0, 6\) once. Received: '1' in row 4"),
    (["1,dog,cat", "0,dog,"], "a table of these labels. The label of example 0 is class 0. Received: 'dog' in row 3"),
    (["2,cat,dog"], "The label of example 2 is class 2. Received: 'cat' in row 2"),
])  # fmt: skip
def test_an_error_names_the_line(lines, text, tmp_path):
    path = write(tmp_path / "labels.csv", *lines)
    with pytest.raises(ValueError, match=f"`path` must .*{text} of .*labels.csv$"):
        apply_corrections(LABELS, path, NAMES)


@pytest.mark.parametrize("content", [
    None,
    b"",
    b"name,age\nAnn,3\n",
    b"\xff\xfei\x00n\x00",
    b'"' + b"x" * 200_000,
    b"index;given,corrected\n",
    b"index,label,corrected,corrected\n1,b,a,\n",
    b"index,label,corrected\n1,b,a,c\n",
])  # fmt: skip
def test_another_file_is_no_table(content, tmp_path):
    path = tmp_path / "labels.csv"
    if content is not None:
        path.write_bytes(content)
    rule = "be a table of labels in UTF-8, with the columns index, label, corrected"
    with pytest.raises(ValueError) as error:
        apply_corrections(LABELS, path, NAMES)
    assert str(error.value).startswith(f"`path` must {rule}. Received: {path}, which is ")
