"""What a name that is not at the top says: where it is, or what is like it."""

import pickle
import types

import pytest

import keras_het
from keras_het.base.missing_name import missing_name

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("find_label_issues", ". There is keras_het.analysis.find_label_issues"),
        ("MonteCarlo", ". There is keras_het.integrators.MonteCarlo"),
        ("get", ". There is keras_het.covariances.get, keras_het.integrators.get, keras_het.links.get"),
        (
            "heteroscedasticdense",
            ". There is keras_het.HeteroscedasticDense, keras_het.layers.JointHeteroscedasticDense",
        ),
        ("SmoothedCrossEntropy", ". There is keras_het.losses.SmoothedCrossentropy"),
        ("NoiseTransitions", ". There is keras_het.NoiseTransition"),
        ("noisylabelclassifier", ". There is keras_het.NoisyLabelClassifier"),
        (
            "HeteroscedasticClassifer",
            ". There is keras_het.HeteroscedasticClassifier, keras_het.training.Heteroscedastic",
        ),
        ("nothing_of_the_kind", ""),
        ("__wrapped__", ""),
    ],
)
def test_a_name_that_is_elsewhere_is_named(name, hint):
    with pytest.raises(AttributeError) as error:
        getattr(keras_het, name)
    assert str(error.value) == f"module 'keras_het' has no attribute '{name}'{hint}"


def test_no_more_than_three_are_named():
    package = types.ModuleType("package")
    package.__all__ = [f"name_{number}" for number in range(9)]
    for name in package.__all__:
        setattr(package, name, None)
    assert str(missing_name(package, "name_")).count("package.name_") == 3


def test_the_flagship_layers_are_at_the_top_and_are_the_same_classes():
    assert keras_het.HeteroscedasticDense is keras_het.layers.HeteroscedasticDense
    assert keras_het.NoiseTransition is keras_het.layers.NoiseTransition
    assert pickle.loads(pickle.dumps(keras_het.HeteroscedasticDense)) is keras_het.HeteroscedasticDense


def test_what_is_shown_is_public():
    assert {*keras_het.__all__, *keras_het.ESTIMATORS, "__version__"} == set(dir(keras_het))
