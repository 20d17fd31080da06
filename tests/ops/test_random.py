import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2, norm

from keras_het.ops import random
from tests.checks import check_independent, check_standard_normal
from tests.common import session, to_numpy

# Published with Random123 1.14, file kat_vectors, "threefry2x32 20": counter, key, answer.
KNOWN_ANSWERS = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def signed(words):
    return np.asarray(words, "uint32").view("int32")


@pytest.mark.parametrize("xp", [ops, np], ids=["keras", "numpy"])
@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_threefry_gives_the_published_answers(counter, key, answer, xp):
    convert = np.asarray if xp is np else ops.convert_to_tensor
    key, counter = (tuple(convert(signed([word])) for word in words) for words in (key, counter))
    words = random.threefry2x32(key, counter, xp)
    assert [int(to_numpy(word)[0]) for word in words] == signed(answer).tolist()


@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_host_and_backend_give_the_same_bits_and_normals(size):
    bits = random.random_bits((123, 45), stream=2, size=size)
    host = random.random_bits((123, 45), stream=2, size=size, xp=np)
    assert_array_equal(to_numpy(bits), host)
    normals = to_numpy(random.normal(bits))
    assert_array_equal(normals, random.normal(host, np))
    assert (normals.shape, normals.dtype) == ((size,), "float32")
    for floatx in ("bfloat16", "float16"):
        with session(floatx):
            result = random.random_normals((123, 45), 2, size)
        assert_array_equal(to_numpy(result), normals)


@pytest.mark.once
@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(3))
def test_normals_are_standard_normal_and_neighbours_independent(seed, base_seed):
    draws = random.normal(random.random_bits((base_seed + seed, 0), 0, 1 << 20, np), np)
    check_standard_normal(draws)
    check_independent(draws[::2, None], draws[1::2, None])


@pytest.mark.once
@pytest.mark.statistical
@pytest.mark.parametrize("other", [((5, 1), 0), ((6, 0), 0), ((5, 0), 1)], ids=["step", "seed", "stream"])
def test_seeds_steps_and_streams_are_independent(other, base_seed):
    keys = [((base_seed + seed, step), stream) for (seed, step), stream in (((5, 0), 0), other)]
    check_independent(*(random.normal(random.random_bits(*key, 1 << 18, np), np)[:, None] for key in keys))


# Cells of the map from bits to normals: those of 2^-16 in the middle, those of 2^-32 at both ends; lowest level and
# probability of each.
MIDDLE, END = np.arange(1, (1 << 16) - 1, dtype="uint32") << 16, np.arange(1 << 16, dtype="uint32")
CELLS = np.concatenate([END, MIDDLE, END + np.uint32(0xFFFF0000)])
SHARES = np.concatenate([np.full(len(part), 2.0**-power) for part, power in ((END, 32), (MIDDLE, 16), (END, 32))])


@pytest.mark.once
def test_normals_are_monotone_in_the_bits_with_mean_zero_and_variance_one():
    values = np.float64(random.normal(signed(CELLS), np))
    assert np.all(np.diff(values) > 0)
    assert abs(SHARES @ values) < 1e-8
    assert abs(SHARES @ values**2 - 1) < 1e-7
    ends = random.normal(signed(CELLS[70000:70100] + np.uint32(0xFFFF)), np)
    assert_array_equal(ends, np.float32(values[70000:70100]))


@pytest.mark.once
@pytest.mark.parametrize("limit", [1.0, 3.0, 4.3, 4.5, 5.0, 5.5])
def test_tails_have_the_probability_of_a_normal(limit):
    """One table of 2^16 levels ends at 4.33: a class likely only under such noise would get too small a mean."""
    values = np.float64(random.normal(signed(CELLS), np))
    for result in (SHARES @ (values > limit), SHARES @ (values < -limit)):
        assert_allclose(result, norm.sf(limit), rtol=2e-2)
    assert_allclose(np.log(SHARES @ np.exp(limit * values)), limit**2 / 2, atol=0.03 if limit < 5 else 0.5)


@pytest.mark.parametrize("bits", [1, 2, 7, 12])
def test_a_permutation_has_every_value_once_in_every_column(bits):
    words = ops.reshape(random.random_bits((0, bits), 0, 8 * 50), (8, 50))
    order = np.arange(1 << bits, dtype="int32")[:, None]
    permuted = to_numpy(random.permute(ops.convert_to_tensor(order), bits, words))
    assert_array_equal(np.sort(permuted, axis=0), np.repeat(order, 50, axis=1))
    assert_array_equal(permuted, random.permute(order, bits, to_numpy(words), np))


@pytest.mark.once
@pytest.mark.statistical
def test_a_value_s_image_is_uniform_over_the_words(base_seed):
    """By a chi-square statistic over 16 cells for every value; false alarm 1e-6 in all."""
    count = 1 << 15
    words = random.random_bits((base_seed + 3, 0), 0, 8 * count, np).reshape(8, count)
    permuted = random.permute(np.arange(16, dtype="int32")[:, None], 4, words, np)
    counts = np.stack([np.bincount(row, minlength=16) for row in permuted])
    statistic = np.sum((counts - count / 16) ** 2 / (count / 16), axis=1)
    assert statistic.max() < chi2.isf(1e-6 / 16, 15)


@pytest.mark.once
def test_blocks_on_the_host_do_not_show(monkeypatch):
    whole = random.random_normals((1, 2), 3, 1001, np)
    monkeypatch.setattr(random, "_HOST_BLOCK", 64)
    assert_array_equal(random.random_normals((1, 2), 3, 1001, np), whole)
    assert_array_equal(random.normal(random.random_bits((1, 2), 3, 1001, np), np), whole)
