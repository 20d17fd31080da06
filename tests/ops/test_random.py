import numpy as np
import pytest
from keras import ops

from keras_het.ops import random
from tests.checks import check_independent, check_standard_normal

# Published with Random123 1.14, file kat_vectors, "threefry2x32 20": counter, key, answer.
KNOWN_ANSWERS = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def signed(word):
    return np.array([word], "uint32").view("int32")


@pytest.mark.parametrize("xp", [ops, np], ids=["keras", "numpy"])
@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_threefry_gives_the_published_answers(counter, key, answer, xp):
    convert = (lambda word: signed(word)) if xp is np else (lambda word: ops.convert_to_tensor(signed(word)))
    words = random.threefry2x32(tuple(map(convert, key)), tuple(map(convert, counter)), xp)
    assert [int(ops.convert_to_numpy(word)[0]) for word in words] == [int(signed(word)[0]) for word in answer]


@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_host_and_backend_give_the_same_bits_and_normals(size):
    bits = random.random_bits((123, 45), stream=2, size=size)
    host = random.random_bits((123, 45), stream=2, size=size, xp=np)
    np.testing.assert_array_equal(ops.convert_to_numpy(bits), host)
    normals = ops.convert_to_numpy(random.normal(bits))
    np.testing.assert_array_equal(normals, random.normal(host, np))
    assert normals.shape == (size,)
    assert normals.dtype == "float32"


@pytest.mark.parametrize("seed", range(3))
def test_normals_are_standard_normal(seed):
    check_standard_normal(random.normal(random.random_bits((seed, 0), 0, 1 << 20, np), np))


@pytest.mark.parametrize("other", [((5, 1), 0), ((6, 0), 0), ((5, 0), 1)], ids=["step", "seed", "stream"])
def test_seeds_steps_and_streams_are_independent(other):
    draws = [random.normal(random.random_bits(key, stream, 1 << 18, np), np)[:, None] for key, stream in (((5, 0), 0), other)]
    check_independent(*draws)


def test_neighbouring_draws_are_independent():
    draws = random.normal(random.random_bits((0, 0), 0, 1 << 19, np), np).reshape(-1, 2)
    check_independent(draws[:, :1], draws[:, 1:])


def test_quantiles_are_monotone_with_mean_zero_and_variance_one():
    table = np.float64(random.normal_quantile(np.arange(1 << 16), np))
    assert np.all(np.diff(table) > 0)
    assert abs(table.mean()) < 1e-8
    assert abs(np.mean(table**2) - 1) < 1e-7


def test_logical_shift_of_a_negative_number():
    assert int(random.uniform_levels(ops.array([-1], dtype="int32"))[0]) == 0xFFFF
