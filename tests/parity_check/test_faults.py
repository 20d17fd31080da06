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
SLOW_OR_SIMILAR = {  # to other cases
    "one row of the output", "40 blocks, gradient times 1.05", "20 blocks, gradient times 1.5 in float32 alone",
    "a Dense layer in TF32, backward alone", "a Dense layer in bfloat16", "a Dense layer in TF32",
    "NaN on all backends", "another second step", "a step times 1.01 in float32 alone", "a weight that is not trained",
    "moving statistics: momentum", "moving statistics: frozen mean", "a state: counts nothing",
    "the gradient of the second of two outputs", "a file: not loaded", "Dropout: not scaled", "Dropout: ignored",
    "Dropout: at inference", "noise of an own layer: uniform", "noise of an own layer: draws twice",
    "a mask that pooling ignores backward", "attention that ignores the causal mask",
    "no gradient of the padding token", "a kernel transposed", "output times 1.001", "no gradient",
    "gradient times 1.05", "the gradient of a loss", "a constraint that is ignored", "a state: counts twice",
    "a loss times 1.001 in float32 alone", "an own loss of a layer that is dropped", "the second of two outputs",
    "a file: no factor", "40 blocks of one layer, gradient times 1.05", "gradients of repeated tokens",
    "a crash in training", "gradient times 0.5 in float32 alone", "a convolution in TF32",
    "output times 1.001 in float32 alone", "a metric without a reset", "moving statistics: unbiased", "a state: mean",
    "a GRU that ignores the mask", "output plus 0.001", "made batch: the gradient of ties", "a metric function doubled",
    "moving statistics: not saved",
}  # fmt: skip
IN_FLOAT64 = {  # cases that need it
    "a wide Dense layer in TF32", "gradient times 1.05 in float32 alone", "a convolution in TF32, backward alone",
    "6 blocks of one layer, gradient times 1.05", "no clipping",
}  # fmt: skip
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
    result = result_of(BY_NAME[name], has_float64=name in SLOW_OR_SIMILAR | IN_FLOAT64)
    return result.status(), result.answer()


def blames_b(answer):
    """True if a text names b, and no other backend, as the one that differs."""
    return bool(re.search(r"\bb\b", answer)) and not re.search(r"\b[ac]( alone)? differs|\band [bc] differ\b", answer)


def is_named(case, answer):
    words = [case.expected] if isinstance(case.expected, str) else case.expected
    return blames_b(answer) and any(word in answer for word in words)


@pytest.mark.parametrize("name", marked(BY_NAME, BY_NAME.keys() - SLOW_OR_SIMILAR))
def test_a_planted_fault_gives_another_exit_status(name):
    status, answer = result_with_fault(name)
    assert status != 0, answer


def test_the_place_of_planted_faults_is_named(pytestconfig):
    left_out = set() if pytestconfig.getoption("--thorough") else SLOW_OR_SIMILAR
    cases = [case for case in CASES if case.named and case.name not in left_out]
    answers = {case.name: result_with_fault(case.name)[1] for case in cases}
    misnamed = {case.name: answers[case.name] for case in cases if not is_named(case, answers[case.name])}
    assert len(misnamed) <= (1 - MIN_NAMED) * len(cases), "\n".join(map(": ".join, misnamed.items()))


@pytest.mark.parametrize("name", marked([case.name for case in CASES if case.clean], CLEAN_BY_DEFAULT))
def test_the_same_model_without_the_fault_agrees(name):
    result = result_of(BY_NAME[name], LABELS[:2], has_fault=False)
    assert result.status() in (0, 3), str(result)


def test_the_names_of_cases_are_known():
    assert len(BY_NAME) == len(CASES)
    assert BY_NAME.keys() >= SLOW_OR_SIMILAR | CLEAN_BY_DEFAULT | IN_FLOAT64
    assert len(BY_NAME.keys() - SLOW_OR_SIMILAR) >= 64
