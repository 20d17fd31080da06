import numpy as np
import pytest

from keras_het.estimator.shuffled import ShuffledBatches

pytestmark = pytest.mark.once


def epoch(data):
    """The rows of an epoch, after which the next begins."""
    rows = np.concatenate([data[i][0] for i in range(len(data))])
    data.on_epoch_end()
    return rows


@pytest.mark.parametrize(("examples", "sizes"), [(1, [1]), (4, [4]), (5, [2, 2]), (8, [4, 4]), (15, [3, 3, 3, 3])])
def test_all_batches_have_one_size_that_leaves_the_fewest_out(examples, sizes):
    data = ShuffledBatches((np.arange(examples),), 4, 0)
    assert [len(data[i][0]) for i in range(len(data))] == sizes


def test_every_epoch_has_another_order_without_repetition():
    data = ShuffledBatches((np.arange(15), np.arange(15) ** 2), 4, 0)
    epochs = [epoch(data) for _ in range(20)]
    assert all(len(set(rows)) == 12 for rows in epochs)
    assert len({tuple(rows) for rows in epochs}) == 20
    assert set(np.concatenate(epochs)) == set(range(15))  # who is left out is not always the same


def test_the_seed_gives_the_orders_and_columns_stay_together():
    first, same, other = (ShuffledBatches((np.arange(32), np.arange(32) ** 2), 8, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first[1][0] ** 2, first[1][1])
    orders = [np.concatenate([epoch(data), epoch(data)]) for data in (first, same, other)]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
