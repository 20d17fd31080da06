"""The doctor finds no problem here, and every planted failure."""

import os
import sys
import tomllib

import keras
import numpy as np
import pytest

from keras_het import __main__
from keras_het.base import environment
from keras_het.commands import doctor
from tests.common import ROOT, python

pytestmark = pytest.mark.once

BACKEND = keras.config.backend()


def settings(folder, backend=BACKEND):
    """Returns the environment of a process that imports modules of this folder first."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    return {"PYTHONPATH": path, "KERAS_HOME": str(folder), "KERAS_BACKEND": backend}


def run_doctor(folder, backend=BACKEND):
    result = python("-m", "keras_het", "doctor", **settings(folder, backend))
    assert "Traceback" not in result.stderr
    return result.returncode, result.stderr if result.returncode else result.stdout


def without(*names):
    return {"sitecustomize.py": f"import sys\nsys.modules.update(dict.fromkeys({names!r}))\n"}


def test_all_is_well_here(capsys):
    assert __main__.main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("No problem found.\n")
    assert f"backend   {BACKEND}" in printed
    assert ("jit_compile=True makes it faster" in printed) == (BACKEND == "torch")
    assert f"keras {keras.__version__}" in printed


OTHERS = [name for name in environment.BACKENDS if name != BACKEND]
OLD_KERAS = f"keras 3.9.2 is too old: keras_het needs {environment.MIN_VERSIONS['keras']} or newer. Upgrade: pip inst"


@pytest.mark.parametrize(("files", "backend", "texts"), [
    (without("jax", "tensorflow", "torch"), BACKEND,
     [f'No backend is installed. Install one: pip install "{BACKEND}>={environment.MIN_VERSIONS[BACKEND]}"']),
    (without(OTHERS[0]), OTHERS[0],
     [f'KERAS_BACKEND is {OTHERS[0]!r}, which is not installed. Install it: pip install "{OTHERS[0]}>=']),
    ({**without(*OTHERS), "keras.json": f'{{"backend": "{OTHERS[0]}"}}'}, "",
     [f"KERAS_BACKEND is not set. These backends are installed: {BACKEND}. Try: export KERAS_BACKEND={BACKEND}\n"]),
    ({}, "tensroflow", ["Keras could not be loaded: ValueError: Un",  # the rest differs in Keras 3.16
                        "KERAS_BACKEND is 'tensroflow'. These backends are installed: "]),
    ({"keras.py": '__version__ = "3.9.2"\n'}, BACKEND, [OLD_KERAS]),
    ({"keras.py": 'raise RuntimeError("a library is missing")\n'}, BACKEND,
     ["Keras could not be loaded: RuntimeError: a library is missing."]),
], ids=["no backend", "not installed", "none chosen", "misspelt", "old Keras", "broken Keras"])  # fmt: skip
def test_what_is_wrong_without_keras(files, backend, texts, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    status, wrong = run_doctor(tmp_path, backend)
    assert status == 1
    assert [text for text in texts if text not in wrong] == []
    if texts == [OLD_KERAS]:
        assert f"ImportError: {OLD_KERAS}" in python("-c", "import keras_het", **settings(tmp_path)).stderr


def problems():
    return {finding.name: finding.problem for finding in doctor.examine() if finding.problem}


@pytest.mark.parametrize("size", [2e-5, np.nan])
def test_one_wrong_output_is_found(monkeypatch, size, capsys):
    wrong = doctor.compute_outputs()
    wrong[1, 0, 0] += size
    monkeypatch.setattr(doctor, "compute_outputs", lambda modes: wrong)
    assert list(problems()) == ["outputs"]
    assert __main__.main(["doctor"]) == 1
    assert "Problems:\noutputs: The noise or the outputs of a head differ from other" in capsys.readouterr().out


def test_a_backend_that_cannot_compile_is_found(monkeypatch):
    train_step = doctor.train_step

    def no_compiler(jit_compile):
        if jit_compile:
            raise RuntimeError("no compiler")
        return train_step(jit_compile)

    monkeypatch.setattr(doctor, "train_step", no_compiler)
    assert "RuntimeError: no compiler. The step runs without compilation" in problems()["training"]


def test_a_loss_that_is_not_finite_a_check_that_fails_and_an_old_backend_are_found(monkeypatch):
    monkeypatch.setattr(doctor, "train_step", lambda jit_compile: (float("nan"), True))
    monkeypatch.setattr(doctor, "compute_outputs", lambda modes: 1 / 0)
    monkeypatch.setattr(sys.modules[BACKEND], "__version__", "0.1.0+cpu")
    found = problems()
    assert "The loss of a training step is nan, not finite." in found["training"]
    assert "ZeroDivisionError: division by zero. Reinstall" in found["outputs"]
    assert f"{BACKEND} 0.1.0+cpu is too old" in found["versions"]


OLD = {"3.15.0": True, "3.15.1": False, "3.15.1rc1": False, "3.9.2": True, "4.0": False, None: False}


@pytest.mark.parametrize("version", OLD)
def test_versions_are_compared_as_numbers(monkeypatch, version):
    monkeypatch.setitem(environment.MIN_VERSIONS, "keras", "3.15.1")
    assert (environment.version_error("keras", version) is not None) == OLD[version]


@pytest.mark.smoke
def test_an_accelerator_is_named_and_its_lack_is_no_problem(monkeypatch):
    assert doctor.check_devices().problem is None
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["gpu:0"], raising=False)
    if BACKEND != "torch":
        assert doctor.check_devices().text == "gpu:0"
        monkeypatch.delattr(keras.distribution, "list_devices")  # as a backend without a distribution has it
        assert doctor.check_devices().text.startswith("unknown")


def test_the_oldest_versions_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = [*project["dependencies"], *(extras[name][-1] for name in environment.BACKENDS)]
    assert dict(requirement.split(">=") for requirement in required) == environment.MIN_VERSIONS
