import numpy as np
import pytest

from keras_het.analysis import find_multi_label_issues

pytestmark = pytest.mark.once


def planted(seed=0, count=400, labels=3):
    """Probabilities of a good model, labels of which some are flipped, and where."""
    rng = np.random.default_rng(seed)
    true = rng.random((count, labels)) < 0.4
    p = np.clip(np.where(true, 0.85, 0.15) + 0.1 * rng.normal(size=true.shape), 0.01, 0.99)
    wrong = rng.random(true.shape) < [0.0, 0.1, 0.2]
    return p, (true ^ wrong).astype(int), wrong


def test_planted_flips_are_found():
    p, y, wrong = planted()
    found = find_multi_label_issues(p, y, class_names=["cat", "dog", "bird"])
    named = np.zeros_like(wrong)
    place = {"cat": 0, "dog": 1, "bird": 2}
    for index, label in zip(found.index[found.is_issue], found.label[found.is_issue], strict=True):
        named[index, place[label]] = True
    assert not named[:, 0].any()
    assert (named & wrong).sum() / named.sum() > 0.95
    assert (named & wrong).sum() / wrong.sum() > 0.8
    assert (np.diff(found.score) >= 0).all()
    assert len(found.index) == y.size
    assert "missing" in str(found)
    assert str(found).splitlines()[-1].endswith("are missing positives")


def test_unknown_labels_are_left_out():
    p, y, _ = planted()
    y[:100, 1] = -1
    found = find_multi_label_issues(p, y)
    assert len(found.index) == y.size - 100
    assert not ((found.index < 100) & (found.label == 1)).any()


def test_the_frame():
    pytest.importorskip("pandas")
    p, y, _ = planted()
    assert list(find_multi_label_issues(p, y).to_frame()) == ["index", "label", "given", "score", "is_issue"]


@pytest.mark.parametrize(
    ("p", "y", "text"),
    [
        (np.full((3, 2), 1.5), np.zeros((3, 2)), "`probabilities` must be in"),
        (np.full((3, 2), 0.5), np.zeros(3), "`labels` must have shape"),
        (np.full((3, 2), 0.5), np.full((3, 2), 2), "`labels` must be 0, 1, or -1 if not known. Received: 2 at"),
        (np.full((3, 2), 0.5), np.full((3, 2), -1), "`labels` must have one that is known"),
    ],
)
def test_refusals(p, y, text):
    with pytest.raises(ValueError, match=text):
        find_multi_label_issues(p, y)
