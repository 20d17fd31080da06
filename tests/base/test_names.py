"""Names at the top of the package: what is there, and what Python says of a misspelt one."""

import pickle

import pytest

import keras_het

pytestmark = pytest.mark.once


def test_a_misspelt_name_is_given_to_python_which_suggests_one_like_it():
    with pytest.raises(AttributeError, match="module 'keras_het' has no attribute 'HeteroscedasticDens'") as error:
        keras_het.HeteroscedasticDens  # noqa: B018
    assert (error.value.name, error.value.obj) == ("HeteroscedasticDens", keras_het)
    assert "HeteroscedasticDense" in dir(error.value.obj)


def test_the_flagship_layers_are_at_the_top_and_what_is_shown_is_public():
    assert keras_het.HeteroscedasticDense is keras_het.layers.HeteroscedasticDense
    assert keras_het.NoiseTransition is keras_het.layers.NoiseTransition
    assert pickle.loads(pickle.dumps(keras_het.HeteroscedasticDense)) is keras_het.HeteroscedasticDense
    assert {*keras_het.__all__, "__version__"} == set(dir(keras_het))
