"""The parity check finds every planted fault of `faults`, and names its place and the backend that has it."""

import functools
import re
import shutil
import tempfile

import keras
import numpy as np
import pytest

from keras_het.parity import Recording, child, processes
from keras_het.parity.batch import pack
from tests.parity_check.faults import CASES, Switch

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore"),  # of models with NaN, and of Keras for weights without gradients
]
LABELS = "a", "b", "c"
MIN_NAMED = 55 / 64
BY_NAME = {case.name: case for case in CASES}
BY_DEFAULT = {  # one of each kind; the session `thorough` has all
    "output times 1.001 at inference alone", "output times 1.001 in training alone", "one entry of 16,384",
    "doubled beside 1e6", "the gradient of a small channel of a bias", "gradient times 1.05 in float32 alone",
    "a kernel without its gradient", "the gradient of the second call of a layer", "a wide Dense layer in TF32", "NaN",
    "NaN in the loss", "NaN in a row on all backends", "another shape", "a crash always", "another epsilon of Adam",
    "a learning rate that differs at step 3", "gradients of four batches summed", "no average of the weights",
    "the step of an Embedding", "a state: counts at inference", "a metric that ignores sample weights",
    "an own train_step", "an own test_step", "an own predict_step", "an own compute_loss",
    "a regularizer that is dropped", "the loss of the second of two outputs", "a dict of outputs that becomes a list",
    "a file: no state of the optimizer", "a file: forgotten", "Dropout: rate", "a sampling layer with the variance",
    "a mask that pooling ignores", "made batch: NaN for a row of zeros", "made batch: the gradient at zero",
    "made batch: the last category", "made batch: a row of padding alone",
}  # fmt: skip
IN_FLOAT64 = {"gradient times 1.05 in float32 alone", "a wide Dense layer in TF32"}  # of these, the ones that need it
CLEAN_BY_DEFAULT = {
    "the gradient of a small channel of a bias", "an own train_step", "Dropout: rate",
    "a sampling layer with the variance", "made batch: NaN for a row of zeros",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def less_work():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(processes.MANY_ROUNDINGS, "roundings", 3)
        yield


def marked(names, default):
    """Returns values for `parametrize`: those that are not in `default` run in the session `thorough` alone."""
    return [name if name in default else pytest.param(name, marks=pytest.mark.thorough) for name in names]


def runner(has_fault=True, has_float64=True, has_files=True):
    """Returns the function that does a job in this process, as if on the backend of this label."""

    def run(folder, label, job):
        if job.get("records") == "float64" and not has_float64:
            return "left out, because this case does not need it"
        if not has_files:
            job = {**job, "saves": False, "loads": None}
            for kind in ("saved", "loaded"):
                Recording(label, arrays={"saved weights": {"": np.zeros(1)}}).save(folder / f"{label}, {kind}.npz")
        if label == "c" and job.get("records"):  # it would compute what "a" computed
            for path in folder.glob("a*"):
                copy_as_c(path)
            job = {**job, "records": False}
        Switch.label = label if has_fault else None
        try:
            child.run(job)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            Switch.label = None
        return None

    return run


def copy_as_c(path):
    """Copies a file or recording of "a" for "c"."""
    target = path.parent / path.name.replace("a", "c", 1)
    if path.suffix == ".keras":
        shutil.copy(path, target)
        return
    recording = Recording.load(path)
    recording.label = recording.label.replace("a", "c", 1)
    recording.save(target)


def result_of(case, labels=LABELS, has_fault=True, has_float64=True):
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        model, data = f"{folder}/model.keras", f"{folder}/data.npz" if case.data else None
        case.make().save(model)
        if data:
            np.savez(data, **pack(**case.data))
        run = runner(has_fault, has_float64, has_files="file" in case.name or "not saved" in case.name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(processes, "run_child", run)
            return processes.compare_file(model, labels, data, plan={} if has_float64 else {"roundings": 1})


@functools.cache
def result_with_fault(name):
    """Returns the exit status and the answer for a case."""
    result = result_of(BY_NAME[name], has_float64=name not in BY_DEFAULT - IN_FLOAT64)
    return result.status(), result.answer()


def blames_b(answer):
    """True if a text names b, and no other backend, as the one that differs."""
    return bool(re.search(r"\bb\b", answer)) and not re.search(r"\b[ac]( alone)? differs|\band [bc] differ\b", answer)


def is_named(case, answer):
    words = [case.expected] if isinstance(case.expected, str) else case.expected
    return blames_b(answer) and any(word in answer for word in words)


@pytest.mark.parametrize("name", marked(BY_NAME, BY_DEFAULT))
def test_a_planted_fault_gives_another_exit_status(name):
    status, answer = result_with_fault(name)
    assert status != 0, answer


def test_the_place_of_planted_faults_is_named(pytestconfig):
    names = BY_NAME if pytestconfig.getoption("--thorough") else BY_DEFAULT
    cases = [case for case in CASES if case.named and case.name in names]
    answers = {case.name: result_with_fault(case.name)[1] for case in cases}
    misnamed = {case.name: answers[case.name] for case in cases if not is_named(case, answers[case.name])}
    assert len(misnamed) <= (1 - MIN_NAMED) * len(cases), "\n".join(map(": ".join, misnamed.items()))


@pytest.mark.parametrize("name", marked([case.name for case in CASES if case.clean], CLEAN_BY_DEFAULT))
def test_the_same_model_without_the_fault_agrees(name):
    result = result_of(BY_NAME[name], LABELS[:2], has_fault=False)
    assert result.status() in (0, 3), str(result)


def test_the_names_of_cases_are_known():
    assert len(BY_NAME) == len(CASES)
    assert BY_NAME.keys() >= BY_DEFAULT | CLEAN_BY_DEFAULT
    assert BY_DEFAULT >= IN_FLOAT64
