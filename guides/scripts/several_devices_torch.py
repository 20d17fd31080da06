"""Train a head on several devices with PyTorch's DistributedDataParallel, with a process for each device.

    torchrun --nproc_per_node 2 guides/scripts/several_devices_torch.py
    python guides/scripts/several_devices_torch.py             # the same training in one process

Every process has the whole model and a part of each batch. You get the losses and weights of a single process, because
the nodes of the noise depend only on the seed and the step. Give all processes batches of the same size. Otherwise the
mean over processes is not the mean over examples.
"""

import argparse
import json
import os
import pathlib

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

import keras_het

ALONE = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29511",
}


def start():
    """Joins the processes that torchrun started, or makes a group of one."""
    for name, value in ALONE.items():
        os.environ.setdefault(name, value)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo"
    )


def check_equal(size):
    """Raises ValueError if the batches of the processes differ in size."""
    sizes = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(sizes, size)
    if len(set(sizes)) > 1:
        rule = "be divisible by the number of processes, in every step"
        raise ValueError(
            f"`batch_size` must {rule}. Received: ranks of {sizes} examples"
        )


def own_rows(*arrays):
    """Returns this process' rows of a batch that all processes have."""
    rank = torch.distributed.get_rank()
    world = torch.distributed.get_world_size()
    return [None if a is None else a[rank::world] for a in arrays]


def train(model, x, y, batch_size, weight=None):
    """Trains a compiled model for one pass over the data.

    Returns the loss of each step, over the batch of all processes.
    """
    parallel, losses = DistributedDataParallel(model), []
    for start in range(0, len(x), batch_size):
        batch = (
            None if data is None else data[start : start + batch_size]
            for data in (x, y, weight)
        )
        part = own_rows(*batch)
        check_equal(len(part[0]))
        losses.append(step(model, parallel, *part))
    return losses


def step(model, parallel, x, y, weight=None):
    """Takes a step like Keras. The backward pass averages the gradients."""
    to_tensor = keras.ops.convert_to_tensor
    y, weight = (None if a is None else to_tensor(a) for a in (y, weight))
    x = to_tensor(x)
    model.zero_grad()
    loss = model.compute_loss(x, y, parallel(x, training=True), weight)
    model.optimizer.scale_loss(loss).backward()
    weights = model.trainable_variables
    with torch.no_grad():
        model.optimizer.apply([w.value.grad for w in weights], weights)
    mean = loss.detach().clone()
    torch.distributed.all_reduce(mean)
    return float(mean) / torch.distributed.get_world_size()


def check_in_sync(model):
    """Raises RuntimeError if a weight differs between processes."""
    values = {w.path: w.numpy().tobytes() for w in model.weights}
    every = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(every, values)
    differ = [p for p in values if len({other[p] for other in every}) > 1]
    if differ:
        raise RuntimeError(f"Weights differ between processes: {differ}")


def example(units=10, features=8, examples=1920):
    """Returns a model with a head, and data with flips to the next class."""
    rng = np.random.default_rng(0)
    true = rng.integers(units, size=examples)
    centers = rng.normal(size=(units, features))
    x = (centers[true] + rng.normal(size=(examples, features))).astype(
        "float32"
    )
    y = (true + (rng.random(examples) < 0.3)) % units
    keras.utils.set_random_seed(0)
    head = keras_het.layers.HeteroscedasticDense(
        units, num_factors=3, seed=0
    )
    model = keras.Sequential(
        [keras.Input((features,)), keras.layers.Dense(32, "relu"), head]
    )
    model.compile(keras.optimizers.SGD(2.0), head.link.loss())
    return model, x, y


def main():
    """Trains, checks that all processes have the same weights, and saves."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--output", type=pathlib.Path, help="for the losses"
    )
    parser.add_argument("--weights", type=pathlib.Path, help="*.weights.h5")
    options = parser.parse_args()
    start()
    model, x, y = example()
    losses = train(model, x, y, options.batch_size)
    check_in_sync(model)
    if torch.distributed.get_rank() == 0:
        print(f"losses {losses[0]:.4f} to {losses[-1]:.4f}")
        if options.output:
            options.output.write_text(json.dumps(losses))
        if options.weights:
            model.save_weights(options.weights)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
