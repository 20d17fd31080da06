"""Recipes of the paper: a killed dry run resumes with the same result; images, schedule and metrics by hand."""

import csv
import dataclasses
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
from PIL import Image
from scipy.special import logsumexp
from sklearn.metrics import average_precision_score

from benchmarks.imagenet import __main__ as command
from benchmarks.imagenet import config, images, model, paper, training
from benchmarks.lib import lines

OPEN_FILE = "ignore::pytest.PytestUnraisableExceptionWarning"  # a killed run does not close its log of metrics
pytestmark = [pytest.mark.once, pytest.mark.filterwarnings(OPEN_FILE)]

TINY = config.small(config.CONFIGS["ilsvrc12"])  # three epochs of five steps
STEPS = 15


class Killed(BaseException):
    """Stand-in for the signal that ends a process."""


class KillAfter(keras.callbacks.Callback):
    """Callback that ends the training after a step, counted from its start."""

    def __init__(self, steps, kill):
        super().__init__()
        self.left, self.kill = steps, kill

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            self.kill()


def raise_killed():
    raise Killed


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return images.generate(tmp_path_factory.mktemp("recipes") / "images")


def run(data, folder, *callbacks):
    """Returns all numbers of a trained model (weights, counter of the noise, optimizer), and the last metrics."""
    trained, metrics = training.train(TINY, *images.read(data), folder, 3, workers=2, callbacks=callbacks)
    variables = [*trained.variables, *trained.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables], metrics


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Returns the result of an uninterrupted run."""
    return run(data, tmp_path_factory.mktemp("whole"))


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one[0], other[0], strict=True)) and one[1] == other[1]


def killed_and_resumed(data, folder, steps):
    with pytest.raises(Killed):
        run(data, folder, KillAfter(steps, raise_killed))
    return run(data, folder)


@pytest.mark.parametrize("steps", [3, 9, STEPS])  # the backup has nothing, an epoch, two epochs
def test_a_run_that_is_killed_and_goes_on_ends_with_the_same_weights(data, whole, tmp_path, steps):
    assert same(killed_and_resumed(data, tmp_path, steps), whole)
    with (tmp_path / "metrics.csv").open() as file:
        assert [line["epoch"] for line in csv.DictReader(file)] == ["0", "1", "2"]


@pytest.mark.planted
@pytest.mark.parametrize("bug", ["another order", "no counter"])
def test_a_run_that_goes_on_wrongly_is_seen(data, whole, tmp_path, monkeypatch, bug):
    class OtherOrder(images.Batches):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self.order = self.order[::-1]

    class Uncounted(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.layers[-1].clock.step.assign(0)

    with pytest.raises(Killed):
        run(data, tmp_path, KillAfter(9, raise_killed))
    if bug == "another order":
        monkeypatch.setattr(training, "Batches", OtherOrder)
    assert not same(run(data, tmp_path, *([Uncounted()] if bug == "no counter" else [])), whole)


@pytest.mark.thorough
def test_a_process_that_gets_sigkill_at_a_random_step_goes_on_with_the_same_weights(data, whole, tmp_path):
    steps = int(np.random.default_rng().integers(1, STEPS))
    code = (
        "import os, pathlib, sys; from benchmarks.tests.test_imagenet import KillAfter, run; "
        "kill = lambda: os.kill(os.getpid(), 9); "
        f"run(sys.argv[1], pathlib.Path(sys.argv[2]), KillAfter({steps}, kill))"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(data), str(tmp_path)], timeout=300, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert same(run(data, tmp_path), whole), f"killed behind step {steps}"


@pytest.mark.parametrize("name", ["webvision", "imagenet21k"])
def test_a_dry_run_of_a_configuration_has_the_metrics_of_every_epoch(data, tmp_path, name):
    command.main(["--config", name, "--dry-run", "--data", str(data), "--output", str(tmp_path), "--workers", "2"])
    with (tmp_path / "dry-run" / name / f"{name}, seed 0" / "metrics.csv").open() as file:
        metrics = list(csv.DictReader(file))
    assert [line["epoch"] for line in metrics] == ["0", "1", "2"]
    assert {"val_nll", "val_gap"} <= set(metrics[0]) if name == "imagenet21k" else {"val_nll", "val_top1", "val_top5"}
    assert float(metrics[-1]["loss"]) < float(metrics[0]["loss"])


def test_a_sweep_has_a_line_for_each_run_and_repeats_none(data, tmp_path):
    words = ["--sweep", "table10", "--dry-run", "--data", str(data), "--output", str(tmp_path)]
    first, again = command.main(words), command.main(words)
    assert [line["row"] for line in first] == ["Dense", "Dense with equal parameters", "full"]
    assert first == again == lines.read(tmp_path / "dry-run", "table10.jsonl")
    assert all(line["epoch"] == 2 for line in first)


def test_every_row_of_a_sweep_has_its_configuration():
    made = {name: [config.changed(config.CONFIGS[base], **own) for base, own in rows.values()] for name, rows in ROWS}
    assert [each.epochs for each in made["table1"]] == [90, 270] * 3
    assert [each.samples for each in made["table9"]] == [1, 10, 100, 1000, 10_000]
    assert [each.temperature for each in made["table3"]][1:] == [1.0, 0.15, 0.15]
    assert [each.link for each in made["table11"]] == ["softmax", "sigmoid"] * 2


ROWS = paper.SWEEPS.items()


def test_the_parameters_of_the_full_head_and_of_the_equal_control_are_those_of_the_paper():
    own = [config.changed(config.CONFIGS[base], **own) for base, own in paper.SWEEPS["table10"].values()]
    dense, equal, full = map(weights_of_the_end, own)
    assert full - dense == 92_969_128 - 60_185_128
    assert equal - dense == 93_200_628 - 60_185_128


def weights_of_the_end(own):
    """Returns the number of weights behind 2048 features, by shape if it is known."""
    hidden = own.hidden * 2049
    if own.head == "dense":
        return hidden + ((own.hidden or 2048) + 1) * 1000
    head = model.make_head(dataclasses.replace(own, samples=1), 1000, 0)
    head.build((None, 2048))
    return head.count_params() - 1  # the counter


def test_the_order_depends_on_the_epoch_and_the_crops_on_the_step(data):
    train, _ = images.read(data)
    first, again, later = (images.Batches(train, TINY, (0, epoch)) for epoch in (0, 0, 1))
    assert len(first) == 5
    np.testing.assert_array_equal(first[3][0], again[3][0])
    assert not np.array_equal(first.order, later.order)
    assert sorted(first.order) == list(range(40))
    assert first[0][0].shape == (8, 16, 16, 3)
    assert -1.0 <= first[0][0].min() < first[0][0].max() <= 1.0
    in_order = images.Batches(train, dataclasses.replace(TINY, batch=16))
    assert [len(in_order[i][1]) for i in range(len(in_order))] == [16, 16, 8]
    assert sum(in_order[i][1].sum(0) for i in range(3)).tolist() == [14, 13, 13]


def test_crops_are_inside_the_image_and_of_the_area_and_shape_that_they_may_have():
    rng = np.random.default_rng(0)
    for width, height in ((400, 300), (300, 400), (20, 400)):
        boxes = np.array([images.crop_box(width, height, rng) for _ in range(200)])
        w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
        assert boxes.min() >= 0
        assert boxes[:, 2].max() <= width
        assert boxes[:, 3].max() <= height
        if width > 100:
            assert 0.07 < (w * h).min() / (width * height) < 0.12
            assert 0.7 < (w / h).min() < (w / h).max() < 1.4
    assert images.middle_box(400, 300, 0.5) == (125.0, 75.0, 275.0, 225.0)


def test_a_folder_has_its_classes_and_images_in_order_or_those_of_its_table(tmp_path):
    for path in ("b/2", "b/1", "a/3"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4), int(path[-1])).save(tmp_path / f"{path}.png")
    result = images.read_part(tmp_path, ["a", "b"])
    assert [path.stem for path in result.paths] == ["3", "1", "2"]
    assert result.classes == [[0], [1], [1]]
    (tmp_path / "labels.csv").write_text("b/1.png,b a\na/3.png,a\n")
    x, y = images.Batches(images.read_part(tmp_path, ["a", "b"]), TINY)[0]
    assert (x.shape, y.tolist()) == ((2, 16, 16, 3), [[1, 0], [1, 1]])
    np.testing.assert_allclose(x[:, 0, 0, 0], np.array([3, 1]) / 127.5 - 1.0, rtol=1e-6)


def test_the_learning_rate_by_hand():
    own = dataclasses.replace(TINY, warmup=0.5, drops=(1, 2), clip=1.0)
    optimizer = model.make_optimizer(own, 8)
    rates = [float(optimizer._learning_rate(step)) for step in (0, 1, 3, 7, 8, 15, 16)]
    np.testing.assert_allclose(rates, [0.025, 0.05, 0.1, 0.1, 0.01, 0.01, 0.001], rtol=1e-6)
    assert (optimizer.global_clipnorm, optimizer.momentum) == (1.0, 0.9)


def test_every_kernel_has_its_own_l2():
    own = dataclasses.replace(config.small(config.CONFIGS["imagenet21k"]), hidden=4)
    made = model.make_model(own, 3, 5, 0)
    result = {v.path.split("/", 1)[-1]: float(v.regularizer.l2) for v in made.trainable_variables if v.regularizer}
    assert sorted(set(result.values())) == pytest.approx([3e-3, 1e-2])
    assert {name for name, l2 in result.items() if l2 > 5e-3} == {
        name for name in result if "scale" in name or "factor" in name
    }
    assert len(result) == sum("kernel" in v.name or v.name == "factor" for v in made.trainable_variables)


def test_the_metrics_by_hand():
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(200, 6)).astype("float32"), (rng.uniform(size=(200, 6)) < 0.3).astype("float32")
    nll, gap = updated(config.CONFIGS["imagenet21k"], y, logits)
    assert nll == pytest.approx((np.logaddexp(0.0, logits) - y * logits).sum(-1).mean(), rel=1e-5)
    assert gap == pytest.approx(average_precision_score(y.ravel(), logits.ravel()), abs=2e-3)
    true = rng.integers(6, size=200)
    nll, top1, top5 = updated(TINY, np.eye(6, dtype="float32")[true], logits)
    assert nll == pytest.approx((logsumexp(logits, -1) - logits[np.arange(200), true]).mean(), rel=1e-5)
    assert top1 == pytest.approx(np.mean(true == logits.argmax(-1)))
    assert top5 == pytest.approx(np.mean(true != logits.argmin(-1)))


def updated(own, y, logits):
    """Returns the metrics of two batches of different sizes."""
    metrics = model.metrics_of(own, 6)
    for part in (slice(0, 150), slice(150, 200)):
        for metric in metrics:
            metric.update_state(y[part], logits[part])
    return [float(metric.result()) for metric in metrics]


def test_overrides_are_read_and_a_softmax_of_several_classes_is_refused():
    words = ["epochs=2", "drops=[1]", "link=sigmoid", "rate=1e-2", "head=dense"]
    made = config.changed(TINY, **dict(map(config.read_override, words)))
    assert (made.epochs, made.drops, made.link, made.rate, made.head) == (2, [1], "sigmoid", 0.01, "dense")
    with pytest.raises(ValueError, match="`link` must be 'sigmoid' for images of several classes"):
        config.changed(TINY, multilabel=True)
