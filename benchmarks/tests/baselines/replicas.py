"""Losses that keep a share, on two replicas of TensorFlow: `python -m benchmarks.tests.baselines.replicas FILE`.

A process of its own, since the devices must be made before TensorFlow starts.
"""

import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

from benchmarks.baselines import CoTeaching, KeptShare, PeerNetworks, SelfPacedCrossentropy
from tests.replicas import BATCH, LABELS, X, attempt, make_model


def trained(kind, scope, made=None):
    """What a loss holds after two epochs, what of it differs between replicas, and whether the weights are finite."""
    with scope():
        loss = made or kind(0.5, from_logits=True)
        members = [make_model(seed) for seed in range(2)]
        model = PeerNetworks(members, link="softmax", from_logits=True) if kind is CoTeaching else members[0]
        model.compile(keras.optimizers.SGD(0.1), loss.attach(model), jit_compile=False)
    fitting = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    model.fit(X, LABELS, callbacks=[KeptShare(num_epochs=1)], **fitting)
    loss.kept_share.assign(0.5)
    copies = {variable.name: getattr(variable.value, "values", [variable.value]) for variable in loss.state.variables}
    return {
        "state": {variable.name: float(np.sum(variable.numpy())) for variable in loss.state.variables},
        "differ": [name for name, each in copies.items() if len({copy.numpy().tobytes() for copy in each}) > 1],
        "finite": all(np.isfinite(weight).all() for weight in model.get_weights()),
    }


def main(path):
    """Writes what each loss did, and one that is made outside of the scope."""
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    scope = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope
    found = {kind.__name__: attempt(trained, kind, scope) for kind in (CoTeaching, SelfPacedCrossentropy)}
    made = SelfPacedCrossentropy(0.5, from_logits=True)
    pathlib.Path(path).write_text(json.dumps(found | {"outside": attempt(trained, SelfPacedCrossentropy, scope, made)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
