"""The outputs of a finished model, and whether its loss and metrics take them: nothing here changes a model.

Users need only `keras_het.check`, and the functions of `keras_het.explain` and `keras_het.labels`.
"""
