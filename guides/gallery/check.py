"""
Title: A loss that does not fit is an error
Description: Keras takes a loss that is wrong for the outputs in silence, and may train backwards; the error names a remedy.
Seeds: 0
"""

import textwrap

import keras

import keras_het

head = keras_het.HeteroscedasticDense(10, name="head")
model = keras.Sequential([keras.Input((64,)), head])
model.compile("adam", "sparse_categorical_crossentropy")
try:
    keras_het.check(model)
except ValueError as error:
    print(textwrap.fill(str(error), 76))
