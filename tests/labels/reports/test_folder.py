"""A report replaces the files of earlier ones whole, keeps what a person corrected in them, and touches no others."""

import os

import numpy as np
import pytest

from keras_het.labels import apply_corrections
from keras_het.labels.reports import page, report
from keras_het.labels.reports.page import check_folder, replace_files
from tests.labels.reports.models import EXAMPLES, make_data, plain

pytestmark = pytest.mark.once

X, Y = make_data()
NAMES = ["ant", "bee", "=cat", "dog"]


@pytest.fixture
def empty_page(monkeypatch):
    """Reports without figures, which take most of the time."""
    monkeypatch.setattr(page, "render", lambda *arguments: '<meta name="generator" content="keras_het 1">')


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("labels", [Y, np.zeros_like(Y)])
@pytest.mark.parametrize(("name", "content"), [
    ("labels.csv", "file,label\na.png,cat\n"),
    ("labels.csv", ""),
    ("labels.csv", "index,label,corrected,my notes\n0,ant,,blurred\n"),
    ("labels.csv", "index,label,corrected\n0,ant,,blurred\n"),
    ("labels.csv", "index,label,corrected,kind\n0,ant,,blurred\n"),
    ("report.html", "<title>The year</title>"),
    ("report.html", None),
])  # fmt: skip
def test_files_of_the_user_are_refused_and_stay(name, content, labels, tmp_path):
    if content is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError) as error:
        report(plain(), X, labels, path=tmp_path)
    rule = f"be a folder without {name}, or with {name} of an earlier report"
    assert str(error.value) == f"`path` must {rule}. Received: {tmp_path / name}, which no report wrote in this form"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert content is None or (tmp_path / name).read_text() == content


def test_a_file_is_no_folder_and_a_page_that_a_report_wrote_may_be_replaced(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"`path` must be a folder\. Received: .*, which is a file"):
        report(plain(), X, Y, path=tmp_path / "file")
    (tmp_path / "file").unlink()
    report(plain(), X, Y, NAMES, tmp_path, title="first")
    check_folder(tmp_path)
    assert sorted(contents(tmp_path)) == ["labels.csv", "report.html"]


def correct(path, corrections):
    """Writes the corrections {index: cell} into a table as a spreadsheet that knows ; and no mark of UTF-8."""
    lines = path.read_text(encoding="utf-8-sig").replace(",", ";").splitlines()
    path.write_text("\n".join(line + corrections.get(line.split(";")[0], "") for line in lines))


def test_the_next_report_keeps_the_corrections(empty_page, tmp_path):
    """Of the first labels, then of the corrected ones; then nothing but these labels is left to be corrected."""
    path = tmp_path / "labels.csv"
    report(plain(), X, Y, NAMES, tmp_path)
    correct(path, {"3": "dog", "1": "'=cat"})
    expected = Y.copy()
    expected[[3, 1]] = 3, 2
    for labels in (Y, expected):
        report(plain(), X, labels, NAMES, tmp_path)
        assert path.read_text(encoding="utf-8-sig").count("\n") == EXAMPLES + 1
        assert sum(line[-1] != "," for line in path.read_text(encoding="utf-8-sig").splitlines()[1:]) == 2
        np.testing.assert_array_equal(apply_corrections(Y, tmp_path, NAMES), expected)
        np.testing.assert_array_equal(apply_corrections(expected, tmp_path, NAMES), expected)


@pytest.mark.filterwarnings("ignore:`probabilities` agree")  # the labels are of other classes
def test_corrections_of_other_labels_are_refused_and_stay(empty_page, tmp_path):
    report(plain(), X, Y, NAMES, tmp_path)
    report(plain(), X, (Y + 1) % 4, NAMES, tmp_path)  # nothing was corrected
    correct(tmp_path / "labels.csv", {"3": "dog"})
    before = contents(tmp_path)
    for labels in (Y, np.zeros_like(Y), Y[:60]):
        with pytest.raises(ValueError, match=r"`path` must .* in row \d+ of .*labels.csv"):
            report(plain(), X[: len(labels)], labels, NAMES, tmp_path)
        assert contents(tmp_path) == before


def test_labels_of_one_class_leave_the_table(empty_page, tmp_path):
    report(plain(), X, Y, NAMES, tmp_path)
    before = contents(tmp_path)["labels.csv"]
    report(plain(), X, np.zeros_like(Y), NAMES, tmp_path)
    assert contents(tmp_path)["labels.csv"] == before


@pytest.mark.parametrize("interruption", [OSError, KeyboardInterrupt])
def test_an_interruption_leaves_the_old_files_whole(interruption, tmp_path, monkeypatch):
    def stop(source, target):
        raise interruption

    replace_files(tmp_path, {"a": b"old", "b": b"old"})
    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(interruption):
        replace_files(tmp_path, {"a": b"new", "b": b"new"})
    assert contents(tmp_path) == {"a": b"old", "b": b"old"}


def test_a_failed_report_leaves_the_old_files_and_makes_no_folder(tmp_path, monkeypatch):
    replace_files(tmp_path / "old", {})

    def fail(*arguments):
        raise RuntimeError

    monkeypatch.setattr(page, "render", fail)
    for name in ("old", "new"):
        with pytest.raises(RuntimeError):
            report(plain(), X, Y, path=tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["old"]


def test_files_may_be_read_by_whom_the_user_lets_read(tmp_path):
    replace_files(tmp_path, {"a": b"new"})
    (tmp_path / "b").write_bytes(b"new")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode
