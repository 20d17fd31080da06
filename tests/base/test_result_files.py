"""Finished parts of a run that were damaged so that they still have their forms."""

import numpy as np
import pytest

from keras_het.base.result_files import ResultFiles

pytestmark = pytest.mark.once

FORMS = {
    "scores": ((2, 3), ("bool", "float32")),
    "seconds": ((), ("float64",)),
    "probabilities": ((3, 2), ("float32",)),
}
WHOLE = {
    "scores": np.zeros((2, 3), "float32"),
    "seconds": np.float64(1),
    "probabilities": np.full((3, 2), 0.5, "float32"),
}


@pytest.mark.parametrize("other", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["scores", "seconds"])
def test_numbers_that_are_not_finite_are_refused(name, other, tmp_path):
    """The best epoch of scores of nan was the first."""
    files = ResultFiles(tmp_path, lambda: {"folds": 2}, "training")
    files.write("one", **WHOLE)
    assert files.read("one", FORMS)["seconds"] == 1
    files.write("one", **WHOLE | {name: np.full_like(WHOLE[name], other)})
    with pytest.raises(
        ValueError, match=f"it is trained anew. Received: `{name}` must be finite. Received: nan or inf"
    ):
        files.read("one", FORMS)
