"""Tests of the benchmarks in the default check: each folder of benchmarks can be imported, and passes a quick test.

`python -m nox -s bench -- tests` runs them all.
"""

import importlib
import pathlib

import pytest

from benchmarks.tests import test_cost, test_imagenet, test_labels, test_results
from benchmarks.tests.real import test_data

pytestmark = pytest.mark.once

FOLDER = pathlib.Path(__file__).parent.parent
QUICK = {
    "cost": test_cost.test_the_base_alone_is_one_row_a_head,
    "imagenet": test_imagenet.test_the_parameters_of_the_full_head_and_of_the_equal_control_are_those_of_the_paper,
    "labels": test_labels.test_the_natural_head_has_the_mean_and_the_variance_of_its_parameters,
    "lib": test_results.test_every_result_file_says_what_is_needed_to_run_it_again,
    "real": test_data.test_measures_against_brute_force,
}


def test_every_folder_has_a_quick_test():
    folders = {path.parent.relative_to(FOLDER).parts[0] for path in FOLDER.glob("*/**/*.py")}
    assert folders == {*QUICK, "tests"}


@pytest.mark.parametrize("folder", QUICK)
def test_a_folder_can_be_imported_and_passes_a_quick_test(folder):
    for path in sorted((FOLDER / folder).rglob("*.py")):
        importlib.import_module(".".join(path.relative_to(FOLDER.parent).with_suffix("").parts))
    QUICK[folder]()
