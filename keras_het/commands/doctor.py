"""`python -m keras_het doctor`: checks whether the package works on this machine, and names a remedy for each fault."""

import platform
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import keras
import numpy as np

from keras_het.base.environment import BACKENDS, MIN_VERSIONS, installed_backends, version_error
from keras_het.base.version import __version__
from keras_het.commands import doctor_reference

LIMIT = 1e-5


class Finding(NamedTuple):
    """The result of one check of the doctor.

    Args:
        name: name of the check.
        text: the result of the check.
        problem: the fault and a remedy; None if all is well.
    """

    name: str
    text: str
    problem: str | None = None


def examine() -> Iterator[Finding]:
    """Yields the findings of all checks, one after the other; a check that fails is a finding, too."""
    yield check_versions()
    yield check_backend()
    checks: dict[str, Callable[[], Finding]] = {
        "devices": check_devices,
        "training": check_training,
        "noise": check_noise,
        "outputs": check_outputs,
    }
    for name in checks if can_train() else ("outputs",):
        try:
            yield checks[name]()
        except Exception as error:
            yield Finding(name, "failed", f"{describe(error)} {reinstall_hint()}")


def can_train() -> bool:
    """Returns whether Keras can train on its backend; if not, its models have no training step."""
    return hasattr(keras.Model, "train_step")


def describe(error: Exception) -> str:
    """Returns the text of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}."


def reinstall_hint() -> str:
    """Returns the advice to install a failing backend again."""
    return f"Install the backend again: pip install --force-reinstall {keras.config.backend()}"


def check_versions() -> Finding:
    """Checks that the packages that keras_het needs are new enough."""
    versions = {
        name: sys.modules[name].__version__ for name in MIN_VERSIONS if hasattr(sys.modules.get(name), "__version__")
    }
    problems = [problem for name, version in versions.items() if (problem := version_error(name, version))]
    ours = {"Python": platform.python_version(), "keras_het": __version__}
    return Finding(
        "versions",
        ", ".join(f"{name} {version}" for name, version in (ours | versions).items()),
        " ".join(problems) or None,
    )


def check_backend() -> Finding:
    """Names the backend that Keras runs on, and the other installed ones."""
    backend, installed = keras.config.backend(), installed_backends()
    others = ", ".join(name for name in BACKENDS if name in installed and name != backend)
    alone = "" if can_train() else ", which predicts, and on which Keras cannot train"
    text = f"{backend}{alone}; others that are installed: {others or 'none'}"
    return Finding("backend", text)


def check_devices() -> Finding:
    """Lists the devices; a missing accelerator is no problem."""
    of_torch = keras.config.backend() == "torch"  # where Keras 3.15 has no list of devices
    try:
        devices = [str(keras.ops.ones(()).device)] if of_torch else keras.distribution.list_devices()
    except AttributeError:  # MLX has no distribution
        return Finding("devices", "not known: Keras does not list them on this backend")
    alone = all(name.startswith("cpu") for name in devices)
    return Finding(
        "devices", ", ".join(devices) + ("; no accelerator: all works, large models more slowly" if alone else "")
    )


def train_step(jit_compile: bool | str) -> tuple[float, bool]:
    """Returns the loss of one training step of a small model, and whether the step was compiled."""
    model = keras.Sequential([keras.Input((doctor_reference.FEATURES,)), doctor_reference.make_head()])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=jit_compile)
    loss = model.train_on_batch(np.ones((4, doctor_reference.FEATURES), "float32"), np.arange(4))
    return float(loss), bool(model.jit_compile)


def check_training() -> Finding:
    """Checks that a training step runs as Keras compiles it."""
    start = time.perf_counter()
    try:
        loss, compiled = train_step("auto")
    except Exception as error:
        return Finding("training", "a compiled step failed", f"{describe(error)} {without_compilation()}")
    faster = "; jit_compile=True makes it faster" * (keras.config.backend() == "torch")
    how = "compiled" if compiled else f"not compiled, as Keras does on this backend{faster}"
    fault = f"The loss of a training step must be finite, and is {loss}. {reinstall_hint()}"
    problem = None if np.isfinite(loss) else fault
    return Finding("training", f"a step, {how}: loss {loss:.3f}, {time.perf_counter() - start:.1f} s", problem)


def without_compilation() -> str:
    """Returns the advice for a compiled step that fails, after a try without compilation."""
    try:
        train_step(False)
    except Exception:
        return f"It fails without compilation, too. {reinstall_hint()}"
    return f"Without compilation it runs: model.compile(..., jit_compile=False). {reinstall_hint()}"


def check_noise() -> Finding:
    """Compares the bits of the noise of one training step with the stored ones."""
    found, right = doctor_reference.noise(), doctor_reference.stored()["noise"]
    wrong = int(np.sum(found != right))
    problem = f"The noise must have the same bits everywhere, so that seeds mean the same. {reinstall_hint()}"
    return Finding("noise", f"{wrong} of {right.size} stored numbers differ in their bits", problem if wrong else None)


def check_outputs() -> Finding:
    """Compares the outputs of a head, in training where Keras can train, and at inference, with the stored ones."""
    modes = (True, False) if can_train() else (False,)
    right = doctor_reference.stored()["outputs"][-len(modes) :]
    difference = float(np.max(np.abs(doctor_reference.outputs(modes) - right)))
    problem = f"A head must return what it returns elsewhere, within {LIMIT:g}. {reinstall_hint()}"
    return Finding(
        "outputs", f"differ from the stored ones by {difference:.1e}", None if difference <= LIMIT else problem
    )


def run() -> int:
    """Prints every finding, then all problems; returns the exit status, 0 if there are none."""
    problems = []
    for finding in examine():
        print(f"{finding.name:<10}{finding.text}", flush=True)
        if finding.problem:
            problems.append(f"{finding.name}: {finding.problem}")
    print("\n" + "\n".join(["What is wrong:", *problems] if problems else ["All is well."]))
    return 1 if problems else 0
