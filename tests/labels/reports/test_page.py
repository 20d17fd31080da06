"""The page holds all that it needs, shows any name as text, and the table of labels runs no formula."""

import base64
import csv
import hashlib
import html.parser
import re
import sys

import keras
import numpy as np
import pytest

from keras_het.labels.corrections import safe_cell
from keras_het.labels.reports import page as page_module
from keras_het.labels.reports import report
from keras_het.labels.reports.figures import Picture
from tests.labels.reports.models import EXAMPLES, HOSTILE, make_data, plain, with_head

pytestmark = pytest.mark.once

X, Y = make_data()
IMAGES = np.random.default_rng(0).integers(0, 256, size=(EXAMPLES, 6, 5, 3)).astype("uint8")


class Page(html.parser.HTMLParser):
    """What a page holds: its tags with their attributes, and the text of its cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.tables, self.inside = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "td":
            self.cells.append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = False if tag == "td" else self.inside

    def handle_data(self, data):
        if self.inside:
            self.cells[-1] += data


@pytest.fixture
def without_figures(monkeypatch):
    """They take most of the time."""
    monkeypatch.setattr(page_module, "reliability_diagram", lambda calibration: Picture("", ""))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = report(with_head(), X, Y, HOSTILE, tmp_path_factory.mktemp("report"), images=IMAGES)
    return path, path.read_text(encoding="utf-8")


def test_a_hostile_name_is_text_apart_from_the_sentences(hostile):
    page = Page(hostile[1])
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "<script>alert" not in hostile[1]
    assert HOSTILE[0] in page.cells
    assert HOSTILE[1] in page.cells
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    # Names that turn text around are apart from the sentences.
    assert all(hostile[1][found.start() - 5 : found.start()] == "<bdi>" for found in re.finditer("\u202e", hostile[1]))
    assert "\u202e" in hostile[1]


def test_the_page_needs_nothing_from_elsewhere(hostile):
    addresses = [a[name] for _, a in Page(hostile[1]).tags for name in ("src", "srcset", "href") if name in a]
    assert len(addresses) == 2 + 10  # a figure, light and dark, and ten flagged labels
    for address in addresses:
        kind, content = re.fullmatch(r"data:image/(png|svg\+xml);base64,([A-Za-z0-9+/=]+)", address).groups()
        content = base64.b64decode(content, validate=True)
        assert content.startswith(b"\x89PNG") if kind == "png" else b"<svg" in content
    assert "@import" not in hostile[1]
    assert "url(" not in hostile[1]


def test_a_policy_allows_the_pages_own_script_and_no_other(hostile):
    (policy,) = [a["content"] for _, a in Page(hostile[1]).tags if a.get("http-equiv") == "Content-Security-Policy"]
    script = hostile[1].split("<script>")[1].split("</script>")[0]
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'; ")


def test_the_table_of_labels_has_every_label_and_no_formula(hostile):
    with (hostile[0].parent / "labels.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["index", "label", "suggested", "score", "is_issue", "kind", "corrected"]
    assert {row[6] for row in rows[1:]} == {""}
    assert sorted(int(row[0]) for row in rows[1:]) == list(range(EXAMPLES))
    assert {row[1] for row in rows[1:]} == {HOSTILE[0], "'" + HOSTILE[1], HOSTILE[2], HOSTILE[3]}
    assert sum(int(row[4]) for row in rows[1:]) == 10
    assert {row[5] for row in rows[1:] if row[4] == "1"} == {"wrong"}
    scores = [float(row[3]) for row in rows[1:]]
    assert scores == sorted(scores)


@pytest.mark.parametrize(("name", "cell"), [
    *((f"{start}1+1", f"'{start}1+1") for start in "=+-@\t\r\n"),
    *(("a;=1+1", "a;'=1+1"), (" =1", " '=1"), ("\uff1d1", "'\uff1d1"), ("a\t@x|+2", "a\t'@x|'+2")),
    *(("a - b; c-d", "a - b; c-d"), (-1, -1), (np.int64(-3), -3), ("a=b", "a=b"), (2.5, 2.5), (None, "None")),
])  # fmt: skip
def test_what_starts_a_formula_in_a_cell_is_quoted_and_nothing_else(name, cell):
    assert safe_cell(name) == cell


def test_the_same_findings_make_the_same_page(tmp_path):
    pages = [report(with_head(), X, Y, path=tmp_path / name).read_text() for name in ("a", "b")]
    assert pages[0] == pages[1]


@pytest.mark.usefixtures("without_figures")
def test_one_class_probabilities_alone_and_labels_without_flags_have_their_pages(tmp_path):
    page = report(plain(), X, np.zeros(EXAMPLES, int), path=tmp_path).read_text()
    assert "all labels are of one class" in page
    assert 'id="flagged"' not in page
    assert not (tmp_path / "labels.csv").exists()
    page = report(None, None, Y, path=tmp_path, probabilities=plain().predict(X, verbose=0)).read_text()
    assert 'id="flagged"' in page
    assert 'id="noise"' in page
    assert 'class="note"' not in page
    assert 'id="noise"' not in report(plain(), X, Y, path=tmp_path).read_text()
    x, y = make_data(wrong=0)
    page = report(plain(), x, y, path=tmp_path).read_text()
    assert "The least probable labels" in page
    assert page.count("<tr>") > EXAMPLES


@pytest.mark.usefixtures("without_figures")
@pytest.mark.filterwarnings("ignore:`probabilities` agree")  # of a model without training
def test_images_of_the_input_are_shown_and_others_must_fit(tmp_path):
    model = keras.Sequential([keras.Input((2, 2, 1)), keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
    assert 'class="thumbnail"' in report(model, X.reshape(-1, 2, 2, 1), Y, path=tmp_path).read_text()
    with pytest.raises(ValueError, match=r"`images` must have a value for each of the 120 examples. Received: 119"):
        report(plain(), X, Y, path=tmp_path, images=IMAGES[1:])


def test_many_examples_and_classes_keep_the_page_small(tmp_path):
    classes, count = 300, 3000
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(classes, 0.05), count).astype("float32")
    y = np.where(rng.random(count) < 0.9, p.argmax(axis=1), np.arange(count) % classes)
    y[:classes] = np.arange(classes)
    page = report(None, None, y, path=tmp_path, probabilities=p)
    assert page.stat().st_size < 5e6
    assert page.read_text().count("<figure>") == 1


def test_without_jinja_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match="The report needs jinja2, which is not installed: pip install jinja2"):
        report(plain(), X, Y, path=tmp_path / "new")
    assert not (tmp_path / "new").exists()
