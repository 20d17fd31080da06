"""Recipes of the paper: a killed dry run resumes with the same result; images, schedule and metrics by hand."""

import dataclasses
import json
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score

from benchmarks.imagenet import __main__ as command
from benchmarks.imagenet import batches, config, evaluation, images, model, paper, training

pytestmark = pytest.mark.once

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
    folder = tmp_path_factory.mktemp("recipes") / "images"
    images.generate(folder)
    return folder


def run(data, folder, *callbacks, save_every=4, config=TINY):
    return training.train(config, *images.sources(str(data)), folder, 3, save_every, callbacks=callbacks)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Returns the weights and lines of an uninterrupted run."""
    trained, lines = run(data, tmp_path_factory.mktemp("whole"))
    return state(trained), without_times(lines)


def state(trained):
    """Returns all numbers of a model: weights, counter of the noise, and the optimizer."""
    variables = [*trained.variables, *trained.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def without_times(lines):
    """Returns the metrics of lines that depend on the weights alone."""
    return [{name: line[name] for name in ("epoch", "nll", "top1", "top5")} for line in lines]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def killed_and_resumed(data, folder, steps):
    with pytest.raises(Killed):
        run(data, folder, KillAfter(steps, raise_killed))
    return run(data, folder)


@pytest.mark.parametrize("steps", [3, 5, 9, STEPS])  # saved: nothing, an epoch, step 8 amid an epoch, all
def test_a_run_that_is_killed_and_goes_on_ends_with_the_same_weights(data, whole, tmp_path, steps):
    trained, lines = killed_and_resumed(data, tmp_path, steps)
    assert same(state(trained), whole[0])
    assert without_times(lines) == whole[1]


def test_a_run_that_is_killed_while_it_saves_goes_on_from_the_state_before(data, whole, tmp_path, monkeypatch):
    replace, calls = training.os.replace, []

    def die_at_the_third(source, target):
        calls.append(target)
        if len(calls) == 3:
            raise Killed
        replace(source, target)

    monkeypatch.setattr(training.os, "replace", die_at_the_third)
    with pytest.raises(Killed):
        run(data, tmp_path)
    monkeypatch.undo()
    assert same(state(run(data, tmp_path)[0]), whole[0])


@pytest.mark.planted
@pytest.mark.parametrize("bug", ["epoch begins again", "another crop", "no counter"])
def test_a_run_that_goes_on_wrongly_is_seen(data, whole, tmp_path, monkeypatch, bug):
    make, restore = training.Training, training.restore

    def wrong(source, own, seed, epoch, first, workers):
        made = make(source, own, seed, epoch, 0 if bug == "epoch begins again" else first, workers)
        made.seed += bug == "another crop" and first > 0
        return made

    def without_counter(trained, folder):
        step = restore(trained, folder)
        trained.layers[-1].clock.step.assign(0)
        return step

    monkeypatch.setattr(training, "Training", wrong)
    if bug == "no counter":
        monkeypatch.setattr(training, "restore", without_counter)
    assert not same(state(killed_and_resumed(data, tmp_path, 9)[0]), whole[0])


@pytest.mark.thorough
def test_a_process_that_gets_sigkill_at_a_random_step_goes_on_with_the_same_weights(data, whole, tmp_path):
    steps = int(np.random.default_rng().integers(1, STEPS))
    code = (
        "import os, sys; from benchmarks.tests.test_imagenet import KillAfter, run; "
        f"run(sys.argv[1], sys.argv[2], KillAfter({steps}, lambda: os.kill(os.getpid(), {int(signal.SIGKILL)})))"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(data), str(tmp_path)], timeout=300, check=False)
    assert ended.returncode == -signal.SIGKILL
    trained, lines = run(data, tmp_path)
    assert same(state(trained), whole[0]), f"killed behind step {steps}"
    assert without_times(lines) == whole[1]


def test_a_folder_of_another_configuration_is_refused(data, whole, tmp_path):
    run(data, tmp_path, config=dataclasses.replace(TINY, epochs=0))
    with pytest.raises(ValueError, match="`folder` must be new or have a run of the same configuration"):
        run(data, tmp_path)


def test_a_torn_line_is_left_out_and_the_next_one_is_whole(tmp_path):
    (tmp_path / training.LINES).write_text('{"epoch": 1}\n{"epo')
    assert not training.has_line(tmp_path, 1)
    training.append(tmp_path, {"epoch": 2})
    assert training.read_lines(tmp_path) == [{"epoch": 1}, {"epoch": 2}]


@pytest.mark.parametrize("name", ["webvision", "jft"])
def test_a_dry_run_of_a_configuration_has_a_line_for_every_epoch(data, tmp_path, name):
    command.main(["--config", name, "--dry-run", "--data", str(data), "--output", str(tmp_path), "--workers", "2"])
    lines = [json.loads(line) for line in (tmp_path / f"{name}-seed0" / training.LINES).read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert {"nll", "gap"} <= set(lines[0]) if name == "jft" else {"nll", "top1", "top5"} <= set(lines[0])
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_a_sweep_has_a_line_for_each_run_and_repeats_none(data, tmp_path):
    words = ["--sweep", "table10", "--seeds", "1", "--dry-run", "--data", str(data), "--output", str(tmp_path)]
    for _ in range(2):
        command.main(words)
        lines = training.read_lines(tmp_path, "table10.jsonl")
        assert [line["row"] for line in lines] == ["Dense", "Dense with equal parameters", "full"]
    assert all(line["epoch"] == 3 for line in lines)


def test_the_rows_of_a_sweep_with_two_data_sets_are_run_for_one(data, tmp_path, capsys):
    parser, words = command.make_parser(), ["--sweep", "table3", "--data", str(data), "--output", str(tmp_path)]
    planned = command.planned(parser.parse_args([*words, "--config", "jft", "--seeds", "2"]), parser)
    assert [run.config for _, run, _ in planned] == ["jft"] * 8
    with pytest.raises(SystemExit):
        command.main(words)
    assert "--config must be one of table3: its rows are of different data" in capsys.readouterr().err


def test_every_run_of_a_sweep_is_listed_and_has_a_configuration(capsys):
    command.main(["--sweep", "table3", "--list"])
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(paper.SWEEPS["table3"]) == 8
    words = "imagenet21k, head=diagonal temperature=1.0 (the paper: 45.9)"
    assert printed[1] == f"table3 1: diagonal, temperature 1, imagenet21k: {words}"
    made = {name: [each.made() for each in runs] for name, runs in paper.SWEEPS.items()}
    assert [each.epochs for each in made["table1"]] == [90, 270] * 3
    assert [each.samples for each in made["table9"]] == [1, 10, 100, 1000, 10_000]
    assert [each.temperature for each in made["table11"]] == [1.0, 1.0, 0.9, 0.9]


def test_the_parameters_of_the_full_head_and_of_the_equal_control_are_those_of_the_paper():
    dense, equal, full = (weights_of_the_end(each.made()) for each in paper.SWEEPS["table10"])
    assert full - dense == 92_969_128 - 60_185_128
    assert equal - dense == 93_200_628 - 60_185_128


def weights_of_the_end(own):
    """Returns the number of weights behind 2048 features, by shape if it is known."""
    hidden = own.hidden * 2049
    if own.head == "dense":
        return hidden + ((own.hidden or 2048) + 1) * 1000
    head = model.head_layers(dataclasses.replace(own, samples=1), 1000, 0)[0]
    head.build((None, 2048))
    return head.count_params() - 1  # the counter


def test_the_order_depends_on_the_epoch_and_the_crops_on_the_step(data):
    source, _ = images.sources(str(data))
    first, again, later = (batches.Training(source, TINY, 0, epoch) for epoch in (0, 0, 1))
    assert len(first) == 5
    np.testing.assert_array_equal(first[3][0], again[3][0])
    np.testing.assert_array_equal(first[3][0], batches.Training(source, TINY, 0, 0, first=2)[1][0])
    assert not np.array_equal(first.order, later.order)
    assert sorted(first.order) == list(range(40))
    assert first[0][0].shape == (8, 16, 16, 3)
    assert -1.0 <= first[0][0].min() < first[0][0].max() <= 1.0
    everything = [batches.InOrder(source, TINY)[i][1] for i in range(5)]
    assert np.bincount(np.concatenate(everything)).tolist() == [14, 13, 13]
    ahead = list(batches.prefetched(batches.InOrder(source, TINY), 3))
    assert all(np.array_equal(a, b[1]) for a, b in zip(everything, ahead, strict=True))


def test_crops_are_inside_the_image_and_of_the_area_and_shape_that_they_may_have():
    rng = np.random.default_rng(0)
    for width, height in ((400, 300), (300, 400), (20, 400)):
        boxes = np.array([batches.crop_box(width, height, rng) for _ in range(200)])
        w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
        assert boxes.min() >= 0
        assert boxes[:, 2].max() <= width
        assert boxes[:, 3].max() <= height
        if width > 100:
            assert 0.07 < (w * h).min() / (width * height) < 0.12
            assert 0.7 < (w / h).min() < (w / h).max() < 1.4
    assert batches.middle_box(400, 300, 0.5) == (125.0, 75.0, 275.0, 225.0)


def test_a_folder_has_its_classes_and_images_in_order_or_those_of_its_table(tmp_path):
    for path in ("b/2", "b/1", "a/3"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4), int(path[-1])).save(tmp_path / f"{path}.png")
    result = images.Folder(tmp_path)
    assert [(result.example(i)[0].getpixel((0, 0)), result.example(i)[1]) for i in range(3)] == [
        ((3, 3, 3), (0,)),
        ((1, 1, 1), (1,)),
        ((2, 2, 2), (1,)),
    ]
    (tmp_path / "labels.csv").write_text("b/1.png,b a\na/3.png,a\n")
    assert [labels for _, labels in images.Folder(tmp_path).examples] == [(0,), (1, 0)]
    x, y = batches.InOrder(images.Folder(tmp_path), config.small(config.CONFIGS["jft"]))[0]
    assert (x.shape, y.tolist()) == ((2, 16, 16, 3), [[1, 0], [1, 1]])
    with pytest.raises(ValueError, match=r"must only have classes of the training data. Received: \['b'\]"):
        images.Folder(tmp_path, ["a"])
    with pytest.raises(ValueError, match="must have a folder for each class"):
        images.Folder(tmp_path / "none")


def test_a_data_set_of_tfds_is_read_by_number_and_refused_without_the_package(monkeypatch):
    class Records(list):
        class dataset_info:  # noqa: N801
            features = {"label": type("Feature", (), {"num_classes": 7})}  # noqa: RUF012

    made = Records([{"image": np.full((4, 4, 1), 9, "uint8"), "label": np.int64(5)}])
    stub = type("tfds", (), {"data_source": staticmethod(lambda name, split: made)})
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", stub)
    train, validation = images.sources("tfds:some")
    assert (train.classes, len(validation)) == (7, 1)
    image, labels = train.example(np.int64(0))
    assert (image.getpixel((0, 0)), labels) == ((9, 9, 9), (5,))
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match="needs the package tensorflow-datasets"):
        images.sources("tfds:some")


def test_the_learning_rate_by_hand():
    schedule = model.WarmupAndDrops(0.1, 4, [8, 10])
    rates = [float(schedule(step)) for step in (0, 1, 3, 7, 8, 10)]
    np.testing.assert_allclose(rates, [0.025, 0.05, 0.1, 0.1, 0.01, 0.001], rtol=1e-6)
    optimizer = model.make_optimizer(config.CONFIGS["imagenet21k"], 100)
    assert (optimizer.global_clipnorm, optimizer.momentum) == (1.0, 0.9)
    assert float(optimizer._learning_rate(3000)) == pytest.approx(0.1 * 3001 / 5000 * 0.1)


def test_every_kernel_has_its_own_l2():
    own = dataclasses.replace(config.small(config.CONFIGS["imagenet21k"]), hidden=4)
    made = model.make_model(own, 3, 5, 0)
    result = {v.path.split("/", 1)[-1]: float(v.regularizer.l2) for v in made.trainable_variables if v.regularizer}
    assert sorted(set(result.values())) == pytest.approx([3e-3, 1e-2])
    assert {name for name, l2 in result.items() if l2 > 5e-3} == {
        name for name in result if "scale" in name or "factor" in name
    }
    assert len(result) == sum("kernel" in v.name or v.name == "factor" for v in made.trainable_variables)


def test_random_layers_in_a_backbone_are_refused():
    random = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.1, name="drop")])
    with pytest.raises(ValueError, match="`backbone` must have no random layers, such as drop: a training could"):
        model.check_backbone(random, TINY)


def test_figures_by_hand():
    outputs = np.log([[0.7, 0.1, 0.1, 0.04, 0.03, 0.02, 0.01], [0.1, 0.3, 0.2, 0.16, 0.14, 0.06, 0.04]])
    nll, first, fifth = evaluation.figures(outputs, np.array([0, 0]))
    assert (nll, first, fifth) == (pytest.approx(-np.log(0.7 * 0.1)), 1, 2)
    nll, first, fifth = evaluation.figures(np.array([[0.0, 2.0]]), np.array([[1.0, 0.0]]))
    assert (nll, first, fifth) == (pytest.approx(np.log(2) + np.log1p(np.exp(2.0))), 0, 1)


def test_the_average_precision_of_counts_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    p, y = rng.uniform(size=(200, 6)), (rng.uniform(size=(200, 6)) < 0.3).astype("float32")
    curve = evaluation.Curve()
    for part in (slice(0, 150), slice(150, 200)):
        curve.add(p[part], y[part])
    assert curve.area() == pytest.approx(average_precision_score(y.ravel(), p.ravel()), abs=1e-5)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"epoch": 3}, "`overrides` must name fields of the configuration. Received: epoch=3"),
        ({"epochs": "3"}, "`epochs` must be of type int. Received: epochs='3'"),
        ({"clip": True}, "`clip` must be of type float. Received: clip=True"),
        ({"head": "plain"}, "`head` must be one of .*. Received: head='plain'"),
        ({"link": "softmax", "multilabel": True}, "`link` must be 'sigmoid' for images of several classes"),
    ],
)
def test_wrong_overrides_are_refused(overrides, text):
    with pytest.raises(ValueError, match=text):
        config.changed(TINY, overrides)


def test_overrides_are_read_and_a_dense_head_has_the_temperature_one():
    words = ["epochs=2", "drops=[1]", "link=sigmoid", "rate=1e-2"]
    made = config.changed(TINY, dict(map(config.read_override, words)) | {"head": "dense"})
    assert (made.epochs, made.drops, made.link, made.rate, made.temperature) == (2, (1,), "sigmoid", 0.01, 1.0)
    assert config.changed(TINY, {"head": "dense", "temperature": 5.0}).temperature == 5.0
