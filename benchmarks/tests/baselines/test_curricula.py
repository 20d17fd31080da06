"""Curricula by features and by losses, against counts and formulas by hand."""

import contextlib
import random

import keras
import numpy as np
import pytest

from benchmarks.baselines import MentorMix, density_subsets, reference_weights, stage_weights

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)


def noisy_clusters(share=0.3, count=400, classes=3):
    """Features in clusters, noisy labels, and which of them are wrong."""
    rng = np.random.default_rng(0)
    true = rng.integers(classes, size=count)
    wrong = rng.random(count) < share
    labels = np.where(wrong, (true + rng.integers(1, classes, size=count)) % classes, true)
    return 6 * np.eye(classes)[true] + rng.normal(size=(count, classes)), labels, wrong


def slow_densities(rows, percentile):
    distances = [[np.sqrt(np.sum((a - b) ** 2)) for b in rows] for a in rows]
    pairs = [distances[i][j] for i in range(len(rows)) for j in range(i)]
    cutoff = np.percentile(pairs, percentile)
    return np.array([sum(d < cutoff for j, d in enumerate(row) if j != i) for i, row in enumerate(distances)])


def test_subsets_are_intervals_of_the_density_in_order():
    rows, labels, _ = noisy_clusters(count=90)
    subsets = density_subsets(rows, labels)
    for label in range(3):
        density, subset = slow_densities(rows[labels == label], 60.0), subsets[labels == label]
        assert set(subset) == {0, 1, 2}
        assert density[subset == 0].min() > density[subset == 1].max()
        assert density[subset == 1].min() > density[subset == 2].max()
        # What k-means reaches: every density is in the subset of the nearest mean.
        means = np.array([density[subset == k].mean() for k in range(3)])
        np.testing.assert_array_equal(np.argmin(np.abs(density[:, None] - means), axis=1), subset)


def test_wrong_labels_are_in_the_last_subset():
    rows, labels, wrong = noisy_clusters()
    subsets = density_subsets(rows, labels)
    assert np.mean(wrong[subsets == 0]) < 0.05
    assert np.mean(wrong[subsets == 2]) > 0.9  # of all labels 30% are wrong
    shuffled = RNG.permutation(labels)  # where features say nothing of labels, neither do subsets
    assert abs(np.mean(wrong[density_subsets(rows, shuffled) == 2]) - 0.3) < 0.15


def test_many_draws_have_no_empty_subset():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        rows = rng.standard_t(1.5, size=(int(rng.integers(12, 60)), 2))
        assert set(density_subsets(rows, np.zeros(len(rows), "int64"), num_subsets=3)) == {0, 1, 2}


def test_stages():
    subsets = np.array([0, 1, 2, 0])
    assert [stage_weights(subsets, stage).tolist() for stage in range(3)] == [
        [1, 0, 0, 1],
        [1, 0.5, 0, 1],
        [1, 0.5, 0.5, 1],
    ]


def test_reference_weights_by_hand_and_of_wrong_labels():
    verified, verified_labels = np.array([[1.0, 0.0], [3.0, 1.0], [-2.0, 2.0]]), np.array([0, 0, 1])
    center = verified.mean(axis=0)
    unit = [(row - center) / np.linalg.norm(row - center) for row in verified]
    x = np.array([[1.0, 1.0], [-5.0, 4.0], [2.0, -1.0]])
    reference = [(unit[0] + unit[1]) / 2, unit[2]]
    labels = np.array([0, 1, 1])
    expected = [
        max(0.0, (row - center) @ reference[k] / np.linalg.norm(row - center) / np.linalg.norm(reference[k]))
        for row, k in zip(x, labels, strict=True)
    ]
    np.testing.assert_allclose(reference_weights(x, labels, verified, verified_labels), expected, rtol=1e-6)
    rows, labels, wrong = noisy_clusters()
    right = np.flatnonzero(~wrong)[:30]
    weights = reference_weights(rows, labels, rows[right], labels[right])
    assert weights[~wrong].mean() > 0.8
    assert weights[wrong].mean() < 0.2


def make_mix(**kwargs):
    x, labels = RNG.normal(size=(20, 3)).astype("float32"), np.arange(20) % 4
    return x, labels, MentorMix(x, labels, num_classes=4, batch_size=8, **kwargs)


def test_a_mixed_example_lies_between_two_and_so_does_its_label():
    x, labels, mix = make_mix(seed=3)
    mix.weights = (np.arange(20) % 3 > 0).astype(float)
    rows = mix._order[:8]
    mixed, y = mix[0]
    for row, example, label in zip(rows, mixed, y, strict=True):
        own = label[labels[row]]
        others = []
        for j in rows:
            if labels[j] == labels[row]:
                continue
            others.append(np.abs(own * x[row] + (1 - own) * x[j] - example).max())
        if own < 1 - 1e-6:  # mixed with another class: the same share mixes examples and labels
            assert min(others) < 1e-5
            assert (own >= 0.5) == (mix.weights[row] == 1.0)
    np.testing.assert_allclose(y.sum(axis=1), 1.0, rtol=1e-6)
    assert [len(mix[i][0]) for i in range(len(mix))] == [8, 8, 4]


def test_partners_are_drawn_by_the_softmax_of_the_weights_and_shares_by_beta():
    """10,000 draws: a frequency is off by more than .02 with a chance below 1e-6."""
    _, _, mix = make_mix(alpha=0.5)
    weights = np.repeat([1.0, 0.0], [3000, 7000])
    partners, share = mix._draw(weights, np.random.default_rng(0))
    expected = 3000 * np.e / (3000 * np.e + 7000)
    assert np.mean(partners < 3000) == pytest.approx(expected, abs=0.025)
    assert share[:3000].min() >= 0.5
    assert share[3000:].max() <= 0.5
    own = np.random.default_rng(1).beta(0.5, 0.5, size=100_000)
    assert share[:3000].mean() == pytest.approx(np.maximum(own, 1 - own).mean(), abs=0.02)


def test_the_seed_and_the_epoch_give_the_batches():
    (_, _, first), (_, _, same) = make_mix(seed=1), make_mix(seed=1)
    first.on_epoch_end()
    before = first[1][1]
    same._begin(1)
    np.testing.assert_array_equal(same[1][1], before)
    first.on_epoch_end()
    assert not np.array_equal(first[1][1], before)


class Watched(MentorMix):
    """Remembers what Keras gets in each epoch."""

    def __init__(self, *arguments, **kwargs):
        self.seen = {}
        super().__init__(*arguments, **kwargs)

    def __getitem__(self, index):
        found = super().__getitem__(index)
        if self._places is not None:
            self.seen.setdefault(self._epoch, []).append(found[0])
        return found

    def on_epoch_begin(self):
        super().on_epoch_begin()
        self.seen[self._epoch] = []  # also after a look at the first batches to build the model


def small_model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model  # Keras looks at a batch before the first epoch, to build the metrics


def watch(model, draw, folder=None, stop_after=None, **fit_arguments):
    """What a run sees, by epoch; `draw` seeds Python's global random."""
    x, labels, _ = noisy_clusters(count=90)
    mix = Watched(x.astype("float32"), labels, 3, batch_size=16, seed=5)
    callbacks = [mix.callback()]
    if folder is not None:
        callbacks.append(keras.callbacks.BackupAndRestore(folder))
    if stop_after is not None:
        stop = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: interrupt(epoch, stop_after))
        callbacks.append(stop)
    random.seed(draw)
    with contextlib.suppress(KeyboardInterrupt):
        model.fit(mix, verbose=0, callbacks=callbacks, **fit_arguments)
    return mix.seen


def interrupt(epoch, stop_after):
    if epoch == stop_after:
        raise KeyboardInterrupt


def check_same(one, other, epochs):
    for epoch in epochs:
        assert len(one[epoch]) == len(other[epoch]) == 6
        for a, b in zip(one[epoch], other[epoch], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.smoke
def test_runs_of_a_seed_see_the_same_batches_in_the_same_order_whatever_is_shuffled():
    runs = [watch(small_model(), draw, epochs=2, shuffle=draw < 2) for draw in range(3)]
    check_same(runs[0], runs[1], range(2))
    check_same(runs[0], runs[2], range(2))
    assert not np.array_equal(runs[0][0][0], runs[0][1][0])


@pytest.mark.smoke
def test_a_run_that_is_interrupted_sees_the_same_when_it_is_resumed(tmp_path):
    whole = watch(small_model(), 1, epochs=3)
    watch(small_model(), 2, tmp_path / "backup", stop_after=1, epochs=3)
    resumed = watch(small_model(), 3, tmp_path / "backup", epochs=3)
    check_same(whole, resumed, (1, 2))
    model = small_model()
    watch(model, 4, epochs=1)
    check_same(whole, watch(model, 5, epochs=3, initial_epoch=1), (1, 2))


def test_several_workers_are_refused():
    _, _, mix = make_mix()
    mix.workers = 2
    with pytest.raises(ValueError, match=r"`workers` must be 1, in this process, for batches in order. Received: work"):
        mix.on_epoch_begin()


@pytest.mark.smoke
def test_fit_refreshes_the_weights_at_the_start_of_each_epoch_after_the_burn_in():
    x, labels, wrong = noisy_clusters()
    x = x.astype("float32")
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(3)])
    model.compile(keras.optimizers.Adam(0.01), keras.losses.CategoricalCrossentropy(from_logits=True))
    mix, shares = MentorMix(x, labels, 3, batch_size=32, burn_in=2), []
    look = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: shares.append(mix.weights.mean()))
    model.fit(mix, epochs=6, verbose=0, callbacks=[mix.callback(), look])
    assert shares == pytest.approx([1.0, 1.0, 0.7, 0.7, 0.7, 0.7], abs=0.01)
    assert mix.weights[~wrong].mean() > 0.9
    assert mix.weights[wrong].mean() < 0.1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: density_subsets(np.ones(3), np.arange(3)), "`features` must have shape (N, D). Received: shape (3,)"),
        (
            lambda: density_subsets(np.ones((4, 2)), np.zeros(4, "int64")),
            (
                "`features` must have examples of at least 3 different densities in every class. "
                "Received: 1 in class 0, of 4 examples"
            ),
        ),
        (
            lambda: density_subsets([[np.nan]], np.zeros(1, "int64")),
            "`features` must be finite. Received: some that are not in row 0",
        ),
        (
            lambda: density_subsets(np.ones((2, 1)), np.zeros(2, "int64"), percentile=100),
            "`percentile` must be in (0, 100). Received: percentile=100",
        ),
        (lambda: stage_weights(np.array([0, 3]), 0), "`subsets` must be in [0, 3). Received: 3 at [1]"),
        (lambda: stage_weights(np.array([0]), 3), "`stage` must be an integer in [0, 2]. Received: stage=3"),
        (
            lambda: reference_weights(np.ones((2, 1)), np.array([0, 1]), np.ones((1, 1)), np.array([0])),
            "`verified_labels` must have an example of every class of `labels`. Received: none of class 1",
        ),
        (
            lambda: reference_weights(np.ones((1, 2)), np.array([0]), np.ones((1, 1)), np.array([0])),
            "`verified_features` must have 2 features, as the examples. Received: shape (1, 1)",
        ),
        (
            lambda: MentorMix(np.ones((2, 1), int), [0, 1], 2),
            "`x` must be floats of shape (N, ...). Received: shape (2, 1), dtype int64",
        ),
        (lambda: MentorMix(np.ones((2, 1)), [0, 2], 2), "`labels` must be in [0, 2). Received: 2 at [1]"),
        (
            lambda: MentorMix(np.ones((2, 1)), [0, 1], 2, percentile=101),
            "`percentile` must be in [0, 100]. Received: percentile=101",
        ),
    ],
)
def test_bad_arguments(function, message):
    with pytest.raises(ValueError) as error:
        function()
    assert str(error.value) == message


def test_a_class_too_large_for_its_distances_is_refused():
    with pytest.raises(ValueError, match="at most 16384 examples of a class"):
        density_subsets(np.ones((16_385, 1)), np.zeros(16_385, "int64"))
