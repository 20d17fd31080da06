"""The counts of tests/prose.py, with a planted sentence for each."""

import pytest

from tests import prose

pytestmark = pytest.mark.once
PAGE = """\
# You find label errors in one call

Your labels are noisy, and you want to know which labels are wrong. If you trust the report, you can train again.
See [where](where.md) `where such labels, too` stand.

| where | those |

```python
where = "such"
```
"""
LONG = "The sentence goes on " + "and on " * 14 + "for you."


@pytest.fixture
def judge(tmp_path, capsys):
    def judge(text, name="page.md"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return prose.main([str(tmp_path / name)]), capsys.readouterr().out

    return judge


def test_a_page_within_the_bounds(judge):
    result, output = judge(PAGE.replace("[where]", "[here]"))
    assert result == 0
    assert [float(line.split()[-1]) for line in output.splitlines() if line.startswith("banned")] == [0, 0]


@pytest.mark.parametrize("sentence", [
    "The labels of the table are noisy. " * 20,
    "Where labels are noisy, you train again.",
    "You use those labels again and again.",
    LONG,
    "You know the classes by heart.",
    "You find the wrong\nlabels of the table.",
])  # fmt: skip
def test_a_page_beyond_a_bound(sentence, judge):
    assert judge(f"{PAGE}\n{sentence}")[0] == 1


@pytest.mark.parametrize(("code", "expected"), [
    ('def f(labels):\n    """Returns x."""', 0),
    ('def is_label(x):\n    """True if x is a label."""', 0),
    ('def check_labels(x):\n    """Checks that x are labels, and builds nothing."""', 0),
    ('def f(labels):\n    """True labels of x."""', 1),
    ('def f(labels):\n    """The x."""', 1),
    ('def f(labels):\n    """Labels of x."""', 1),
    ('def f(given):\n    """Returns x."""', 1),
    ("of_labels = 1", 1),
    ("labels = 1  # those of x", 1),
])  # fmt: skip
def test_a_module(code, expected, judge):
    assert judge(code, "module.py")[0] == expected
