"""Names at the top of the package: what is there, and what Python says of a misspelt one."""

import pickle
import traceback

import pytest

import keras_het

pytestmark = pytest.mark.once


def test_a_misspelt_name_is_answered_with_one_like_it():
    with pytest.raises(AttributeError) as error:
        keras_het.HeteroscedasticDens  # noqa: B018
    text = "".join(traceback.format_exception(error.value))
    assert "module 'keras_het' has no attribute 'HeteroscedasticDens'. Did you mean: 'HeteroscedasticDense'?" in text


def test_the_flagship_layers_are_at_the_top_and_are_the_same_classes():
    assert keras_het.HeteroscedasticDense is keras_het.layers.HeteroscedasticDense
    assert keras_het.NoiseTransition is keras_het.layers.NoiseTransition
    assert pickle.loads(pickle.dumps(keras_het.HeteroscedasticDense)) is keras_het.HeteroscedasticDense


def test_what_is_shown_is_public():
    assert {*keras_het.__all__, *keras_het.ESTIMATORS, "__version__"} == set(dir(keras_het))
