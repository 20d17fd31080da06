"""`python -m keras_het doctor`: checks that the package works on this machine, and names a remedy for each problem.

The doctor compares the outputs of one small head, without and with the noise of a training step, with the file
`doctor_reference.json`. Only after a change of the noise itself, write this file again:
`python -c "from keras_het.commands import doctor; doctor.write_reference()"`.
"""

import json
import pathlib
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import keras
import numpy as np

from keras_het import integrators, layers
from keras_het.base.environment import BACKENDS, MIN_VERSIONS, backend_remedy, installed_backends, version_error
from keras_het.base.version import __version__

LIMIT = 1e-5
REFERENCE = pathlib.Path(__file__).with_name("doctor_reference.json")
UNITS, NUM_FACTORS, FEATURES, SEED, NUM_SAMPLES = 4, 2, 3, 2021, 16
CAN_TRAIN = hasattr(keras.Model, "train_step")  # on NumPy, models have no training step
REINSTALL = backend_remedy(keras.config.backend())


class Finding(NamedTuple):
    """Result of one check; `problem` includes the remedy."""

    name: str
    text: str
    problem: str | None = None


def examine() -> Iterator[Finding]:
    """Yields the finding of each check; an error in a check becomes a finding."""
    yield check_versions()
    yield check_backend()
    checks = {"devices": check_devices, "training": check_training, "outputs": check_outputs}
    for name in checks if CAN_TRAIN else ("outputs",):
        try:
            yield checks[name]()
        except Exception as error:
            yield Finding(name, "failed", f"{describe(error)} {REINSTALL}")


def describe(error: Exception) -> str:
    """Returns the text of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}."


def check_versions() -> Finding:
    """Checks the versions of the packages that keras_het needs."""
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
    """Reports the backend that Keras runs on, and the other installed backends."""
    backend, installed = keras.config.backend(), installed_backends()
    others = ", ".join(name for name in BACKENDS if name in installed and name != backend)
    limit = "" if CAN_TRAIN else ", for predictions only: Keras cannot train on it"
    return Finding("backend", f"{backend}{limit} (also installed: {others or 'none'})")


def check_devices() -> Finding:
    """Lists the devices; a missing accelerator is no problem."""
    is_torch = keras.config.backend() == "torch"  # Keras 3.15 cannot list its devices
    try:
        devices = [str(keras.ops.ones(()).device)] if is_torch else keras.distribution.list_devices()
    except AttributeError:  # MLX has no distribution
        return Finding("devices", "unknown: Keras does not list them on this backend")
    hint = " (no accelerator: everything works, but large models are slow)"
    return Finding("devices", ", ".join(devices) + hint * all(name.startswith("cpu") for name in devices))


def make_head() -> layers.HeteroscedasticDense:
    """Makes a small head; a formula gives its weights."""
    integrator = integrators.QuasiMonteCarlo(NUM_SAMPLES)
    head = layers.HeteroscedasticDense(UNITS, NUM_FACTORS, seed=SEED, integrator=integrator)
    head.build((None, FEATURES))
    for weight in head.trainable_weights:
        weight.assign(np.cos(np.arange(np.prod(weight.shape))).reshape(weight.shape))
    return head


def train_step(jit_compile: bool | str) -> tuple[float, bool]:
    """Returns the loss of one training step of a small model, and whether the step was compiled."""
    model = keras.Sequential([keras.Input((FEATURES,)), make_head()])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=jit_compile)
    loss = model.train_on_batch(np.ones((4, FEATURES), "float32"), np.arange(4))
    return float(loss), bool(model.jit_compile)


def check_training() -> Finding:
    """Checks a training step that is compiled as Keras does by default; if it fails, tries one without compilation."""
    start = time.perf_counter()
    try:
        loss, is_compiled = train_step("auto")
    except Exception as error:
        try:
            train_step(False)
            hint = "The step runs without compilation: use model.compile(..., jit_compile=False)."
        except Exception:
            hint = "The step also fails without compilation."
        return Finding("training", "the compiled step failed", f"{describe(error)} {hint} {REINSTALL}")
    faster = "; jit_compile=True makes it faster" * (keras.config.backend() == "torch")
    mode = "compiled" if is_compiled else f"not compiled, the default of Keras on this backend{faster}"
    problem = None if np.isfinite(loss) else f"The loss of a training step is {loss}, not finite. {REINSTALL}"
    text = f"one step in {time.perf_counter() - start:.1f} s, loss {loss:.3f} ({mode})"
    return Finding("training", text, problem)


def compute_outputs(modes: Iterable[bool] = (True, False)) -> np.ndarray:
    """Returns the outputs of the head for two inputs, in training or not, `(modes, 2, UNITS)`."""
    head, x = make_head(), np.linspace(-1.0, 1.0, 2 * FEATURES, dtype="float32").reshape(2, FEATURES)
    return np.stack([keras.ops.convert_to_numpy(head(x, training=training)) for training in modes])


def write_reference() -> None:
    """Writes the outputs on this machine to the file."""
    REFERENCE.write_text(json.dumps(compute_outputs().tolist()) + "\n")


def check_outputs() -> Finding:
    """Compares the outputs of a head, at inference and if possible in training, with the stored outputs.

    Equal outputs in training imply equal noise.
    """
    modes = (True, False) if CAN_TRAIN else (False,)
    expected = np.array(json.loads(REFERENCE.read_text()), "float32")[-len(modes) :]
    difference = float(np.max(np.abs(compute_outputs(modes) - expected)))
    problem = f"The noise or the outputs of a head differ from other machines by more than {LIMIT:g}. {REINSTALL}"
    text = f"largest difference from the stored outputs {difference:.1e} (limit {LIMIT:g})"
    return Finding("outputs", text, None if difference <= LIMIT else problem)


def run() -> int:
    """Prints every finding, then all problems; returns the exit status, 0 without a problem."""
    problems = []
    for finding in examine():
        print(f"{finding.name:<10}{finding.text}", flush=True)
        if finding.problem:
            problems.append(f"{finding.name}: {finding.problem}")
    print("\n" + "\n".join(["Problems:", *problems] if problems else ["No problem found."]))
    return 1 if problems else 0
