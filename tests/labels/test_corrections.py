"""Corrections come back as a person wrote them, however a spreadsheet saves the table, or an error names the line."""

import csv
import io

import numpy as np
import pandas
import pytest

from keras_het.labels import apply_corrections, find_issues, report
from tests.common import refuses
from tests.labels.test_page import HOSTILE

pytestmark = pytest.mark.refusal

NAMES = ["cat", "dog", "-1", "a;b"]
LABELS, SCORES = np.array([0, 1, 2, 3, 0, 1]), np.full((6, 4), 0.25)


def table(folder, corrections, names=NAMES):
    """Returns the table of a report with corrections, as the report writes their classes."""
    file = report(find_issues(SCORES, LABELS), folder, class_names=names).with_name("labels.csv")
    frame = pandas.read_csv(file, dtype=str, keep_default_na=False, index_col="index", encoding="utf-8-sig")
    cells = frame.label.copy()
    for row, label in corrections.items():
        frame.loc[str(row), "corrected"] = cells[str(LABELS.tolist().index(label))]
    return frame.to_csv(lineterminator="\r\n").encode("utf-8-sig")


def saved(content, separator=",", mark=True, ending="\r\n", quoting=csv.QUOTE_MINIMAL):
    """The table as a spreadsheet would save it."""
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
    before = LABELS.copy()
    assert apply_corrections(LABELS, tmp_path, names).tolist() == [2, 1, 2, 0, 0, 1]
    np.testing.assert_array_equal(LABELS, before)
    assert apply_corrections([2, 1, 2, 0, 0, 1], tmp_path, names).tolist() == [2, 1, 2, 0, 0, 1]  # corrected already


def write(path, *lines, columns="index,label,corrected"):
    path.write_text("\n".join([columns, *lines]))
    return path


@pytest.mark.parametrize(
    ("line", "corrected"),
    [("2, -1 ,dog", 1), ("2,'-1,-1", 2), ("2,-1,'-1", 2), ("2,-1,a;b", 3), ("2,-1,", 2), ("2,-1", 2)],
)
def test_a_person_may_write_a_name_as_it_is_or_as_the_table_has_it(line, corrected, tmp_path):
    """And sort the lines, leave some out, or add columns."""
    path = write(tmp_path / "mine.csv", f"mine,{line}", "", "mine,0,cat,dog", columns="notes,index,label,corrected")
    assert apply_corrections(LABELS, path, dict(enumerate(NAMES))).tolist() == [1, 1, corrected, 3, 0, 1]


def test_without_names_classes_are_numbers_that_the_labels_have(tmp_path):
    path = write(tmp_path / "labels.csv", "1,1,3")
    assert apply_corrections(LABELS, path).tolist() == [0, 3, 2, 3, 0, 1]
    with pytest.raises(ValueError, match=r"'0', '1', '2', '3'\. Received: '4' in row 2 of"):
        apply_corrections(LABELS, write(path, "1,1,4"))
    assert apply_corrections(LABELS, path, range(5))[1] == 4


def test_names_may_have_any_order_and_further_classes_and_two_classes_of_one_name_cannot(tmp_path):
    path = write(tmp_path / "labels.csv", "1,dog,owl")
    assert apply_corrections(["cat", "dog", "cat"], path, ["owl", "dog", "cat"]).tolist() == ["cat", "owl", "cat"]
    with pytest.raises(ValueError, match="`class_names` must be 'cat', 'dog' in any order, the names in `labels`"):
        apply_corrections(["cat", "dog", "cat"], path, ["owl", "dog"])
    path = write(tmp_path / "labels.csv", "1,a,b", "0,a,")
    assert apply_corrections([0, 1], path, ["a", "a", "b"]).tolist() == [0, 2]
    with refuses(r"the name of one class in the column `corrected`: 'a', 'b'\. Received: 'a' in row 2"):
        apply_corrections([0, 2], write(path, "1,b,a"), ["a", "a", "b"])


@pytest.mark.parametrize(("lines", "text"), [
    (["0,cat,", "1,dog,wolf"],
     "name of one class in the column `corrected`: 'cat', 'dog', .*. Received: 'wolf' in row 3"),
    (["1,dog,cat", "6,cat,"], r"each index in \[0, 6\) once. Received: '6' in row 3"),
    (["1,dog,cat", "-1,cat,"], "Received: '-1' in row 3"),
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
