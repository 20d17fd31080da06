"""Files of labels to check come back as people filled them in, however they were saved, or an error names the place."""

import csv
import dataclasses
import io
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest

from keras_het.analysis import next_labels, read_verified_labels
from keras_het.analysis.corrections import name_of_cell, safe_cell
from tests.labels.report.models import HOSTILE

pytestmark = pytest.mark.once

P = np.random.default_rng(0).dirichlet(np.ones(4), 12)
LABELS = np.arange(12) % 4
TEXTS = ["=1+1", "two\nlines", None, *("x" * count for count in range(9))]
DIALECTS = [
    {},
    {"separator": ";", "ending": "\n"},
    {"separator": "\t", "mark": False, "quoting": csv.QUOTE_ALL},
    {"separator": ";", "comma": True},
]


def asked(names=None, index=None, **arguments):
    """What is asked, with names of classes and examples."""
    found = next_labels(P, LABELS, 6, **arguments)
    names = found.class_names if names is None else np.array(names)
    return dataclasses.replace(found, class_names=names, example_names=index)


def filled(path, classes, separator=",", mark=True, ending="\r\n", quoting=csv.QUOTE_MINIMAL, comma=False):
    """Writes cells into `verified` of the first lines, as a spreadsheet saves them."""
    head, *rows = csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""))
    place = head.index("verified")
    for row, name in zip(rows, classes, strict=False):
        row[place] = name
        row[4] = row[4].replace(".", ",") if comma else row[4]
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator, lineterminator=ending, quoting=quoting).writerows([head, *reversed(rows)])
    path.write_bytes(file.getvalue().encode("utf-8-sig" if mark else "utf-8"))
    return path


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("names", [["cat", "dog", "-1", "a;b"], HOSTILE, ["Bär", "=1", "a\nb", "'tis"]])
def test_a_table_comes_back(names, dialect, tmp_path):
    found = asked(names, goal="random")
    found.to_csv(path := tmp_path / "check.csv", texts=TEXTS)
    filled(path, [safe_cell(names[place % 4]) for place in range(4)], **dialect)
    read = read_verified_labels(path, names)
    assert read.labels == {int(index): names[place % 4] for place, index in enumerate(found.index[:4])}
    assert sorted(read.asked) == sorted(found.index.tolist())
    assert read.inclusion == dict.fromkeys(found.index[:4].tolist(), 0.5)
    by_name = {index: label.strip() for index, label in read_verified_labels(path).labels.items()}
    assert by_name == {index: label.strip() for index, label in read.labels.items()}


def test_the_columns_of_a_table_and_what_is_shown_of_the_examples(tmp_path):
    frame = pd.DataFrame({"age": np.arange(12) / 4, "=name": ["@x"] * 12, "note": [None] * 12})
    found = asked(["=cat", "dog", "cow", "pig"])
    found.to_csv(path := tmp_path / "check.csv", TEXTS, frame)
    head, *rows = csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""))
    assert head[:6] == ["index", "given", "suggested", "score", "inclusion", "verified"]
    assert head[6:] == ["x: text", "x: age", "x: =name", "x: note"]
    assert [int(row[0]) for row in rows] == found.index.tolist()
    for row, index, given, score in zip(rows, found.index, found.given, found.score, strict=True):
        assert row[1] == ("'=cat" if given == 0 else found.class_names[given])
        assert float(row[3]) == pytest.approx(score, rel=1e-5)
        text = TEXTS[index] or ""
        assert row[4:] == ["", "", "'=1+1" if index == 0 else text, str(index / 4), "'@x", ""]


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(
    ("index", "keys"),
    [
        (None, list(range(12))),
        (pd.Index(range(-3, 9)), list(range(-3, 9))),
        (pd.Index([f"{place}-=a" for place in range(12)]), [f"{place}-=a" for place in range(12)]),
        (pd.Index(["=1", *map(str, range(11))]), ["=1", *map(str, range(11))]),
    ],
)
def test_indices_are_those_of_the_frame(index, keys, kind, tmp_path):
    found = asked(index=index)
    if kind == "csv":
        found.to_csv(path := tmp_path / "check.csv")
        filled(path, ["1"] * 6)
    else:
        found.to_label_studio(path := tmp_path / "check.json", TEXTS)
        exported(path, [[annotation("1")]] * 6)
    assert read_verified_labels(path).labels == {keys[place]: 1 for place in found.index}


def test_names_of_cells():
    for name in [*HOSTILE, "-1", "'-1", "a;=b", "plain", "'tis"]:
        assert name_of_cell(safe_cell(name)) in (name, name.replace("'", "", 1))
    assert name_of_cell("'=1") == "=1"


def annotation(*choices, **more):
    """An annotation as Label Studio exports it."""
    value = {"choices": list(choices)}
    result = [{"from_name": "verified", "to_name": "text", "type": "choices", "value": value}] if choices else []
    return {"id": 1, "was_cancelled": False, "ground_truth": False, "result": result} | more


def exported(path, annotations):
    """The tasks of a file with annotations, as Label Studio exports them."""
    tasks = json.loads(path.read_text())
    for number, (task, own) in enumerate(zip(tasks, annotations, strict=True)):
        task |= {"id": number, "annotations": own}
    path.write_text(json.dumps(tasks))
    return path


def test_tasks_have_the_form_that_label_studio_documents(tmp_path):
    names = ['"cat" & <dog>', "dog", "cow", "pig"]
    found = asked(names, goal="random")
    text = found.to_label_studio(tmp_path / "check.json", TEXTS, [f"https://x.org/{place}.jpg" for place in range(12)])
    view = ElementTree.fromstring(text)
    assert [(child.tag, child.get("name"), child.get("value")) for child in view[:2]] == [
        ("Text", "text", "$text"),
        ("Image", "image", "$image"),
    ]
    assert [choice.get("value") for choice in view[2]] == names
    for number, task in enumerate(json.loads((tmp_path / "check.json").read_text())):
        index = int(found.index[number])
        shown = {"text": TEXTS[index] or "", "image": f"https://x.org/{index}.jpg"}
        assert task["data"] == {"index": index, "given": names[found.given[number]], "inclusion": 0.5} | shown
        assert task["predictions"] == []  # of a random draw nobody is told a class
    found = asked(names, goal="errors")
    found.to_label_studio(tmp_path / "check.json", TEXTS)
    for number, task in enumerate(json.loads((tmp_path / "check.json").read_text())):
        (prediction,) = task["predictions"]
        assert prediction["score"] == found.score[number]
        (result,) = prediction["result"]
        assert result["value"] == {"choices": [names[found.suggested[number]]]}
        assert [result[name] for name in ("type", "from_name", "to_name")] == ["choices", view[2].get("name"), "text"]


def test_annotations_come_back_without_those_that_are_none(tmp_path):
    names = ["cat", "dog", "cow", "pig"]
    found = asked(names, goal="random")
    found.to_label_studio(path := tmp_path / "check.json", TEXTS)
    truth = annotation("pig", ground_truth=True)
    own = [
        [annotation("dog")],
        [annotation("cow", was_cancelled=True)],
        [annotation("cat"), annotation("cat")],
        [annotation()],
        [],
        [annotation("cat"), truth],
    ]
    exported(path, own)
    expected = dict(zip(found.index[[0, 2, 5]].tolist(), ["dog", "cat", "pig"], strict=True))
    assert read_verified_labels(path, names).labels == expected
    read = read_verified_labels(path)
    assert read.labels == expected
    assert read.asked == found.index.tolist()
    assert read.inclusion == dict.fromkeys(expected, 0.5)


def refused(path, content, text, names=None):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=re.escape(text)):
        read_verified_labels(path, names)


TABLE = "index,verified,inclusion\n3,cat,0.5\n"
DEEP, LONG = "[" * 100_000, "9" * 10_000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            "index,given\n1,2\n",
            "`path` must be a table in UTF-8 with the columns index and verified, or what Label Studio",
        ),
        ("", "`path` must be a table in UTF-8"),
        (b"index,verified\n1,\xff\n", "`path` must be a table in UTF-8"),
        (b"\x00\x01\x02", "`path` must be a table in UTF-8"),
        (TABLE + "4,dog,0.5,more\n", "`path` must be a table in UTF-8"),
        (TABLE + f"4,{'x' * 200_000},\n", "`path` must be a table in UTF-8"),
        (TABLE + "3,dog,0.5\n", "`path` must have each index once. Received: '3' again in line 3 of "),
        (TABLE + ",dog,0.5\n", "`path` must have an index in each line. Received: none in line 3 of "),
        (
            TABLE + "4,cow,0.5\n",
            "must have the name of one class as `verified`, of 'cat', 'dog'. Received: 'cow' in line 3",
        ),
        (TABLE + "4,dog,0\n", "`path` must have probabilities in (0, 1] as `inclusion`. Received: '0' in line 3 of "),
        (TABLE + "4,dog,nan\n", "`path` must have probabilities in (0, 1] as `inclusion`. Received: 'nan' in line 3"),
        (TABLE + "4,dog,1e999\n", "`path` must have probabilities in (0, 1] as `inclusion`. Received: '1e999'"),
        (DEEP, "`path` must be a table in UTF-8"),
        (f"[{LONG}]", "`path` must be a table in UTF-8"),
        ('{"index": 3}', "`path` must have tasks with `data`"),
        ('[{"index": 3, "verified": "cat"}]', "export JSON, not JSON-MIN. Received: no `data` in task 1 of "),
        ('[{"data": {"index": 3}}]', "Received: no `annotations` in task 1 of "),
        ('[{"data": {"index": 1.5}, "annotations": []}]', "Received: an index '1.5' in task 1 of "),
        ('[{"data": {"index": true}, "annotations": []}]', "Received: an index 'True' in task 1 of "),
        ('[{"data": {"index": 3}, "annotations": [{"result": 3}]}]', "Received: no `result` in task 1 of "),
        (
            json.dumps([{"data": {"index": 3}, "annotations": [annotation([3])]}]),
            "`path` must have texts as the `choices` of an annotation. Received: others in task 1 of ",
        ),
    ],
)
@pytest.mark.refusal
def test_untrusted_files_are_refused_by_the_place(content, text, tmp_path):
    refused(tmp_path / "check", content, text.replace("'3' again", "'3' again"), ["cat", "dog"])


@pytest.mark.refusal
def test_annotations_that_disagree_are_refused(tmp_path):
    task = {"data": {"index": 3}, "annotations": [annotation("dog"), annotation("cat")]}
    rule = "`path` must have one class for each task, or one annotation marked as ground truth"
    refused(tmp_path / "check", json.dumps([task]), f"{rule}. Received: 'cat' and 'dog' in task 1 of ")


@pytest.mark.parametrize(
    ("method", "arguments", "text"),
    [
        ("to_csv", {"texts": ["a"]}, "`texts` must have an entry for each example, "),
        (
            "to_csv",
            {"texts": "abcdefghijklmn"},
            "`texts` must be a sequence with an entry for each example. Received: a str",
        ),
        ("to_csv", {"frame": np.zeros((12, 2))}, "`frame` must be a pandas frame. Received: a ndarray"),
        (
            "to_csv",
            {"frame": pd.DataFrame({"a": range(12)})},
            "`frame` must have the index of the labels, in their order.",
        ),
        ("to_label_studio", {}, "`texts` must be given, or `images`: nobody can check a label without the example."),
        ("to_label_studio", {"images": np.zeros((12, 2, 2))}, "`images` must be addresses, texts. Received: a ndarray"),
    ],
)
@pytest.mark.refusal
def test_other_examples_are_refused(method, arguments, text, tmp_path):
    with pytest.raises(ValueError, match=re.escape(text)):
        getattr(asked(index=pd.Index(range(12, 24))), method)(tmp_path / "check", **arguments)
    assert not any(tmp_path.iterdir())


@pytest.mark.refusal
def test_no_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`path` must be a table in UTF-8 .* Received: .*none\.csv, which is no file"):
        read_verified_labels(tmp_path / "none.csv")
