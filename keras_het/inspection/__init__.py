"""What a finished model returns, and whether its loss and metrics take that: nothing here changes a model.

Users need only `keras_het.check`, and what `keras_het.analysis` lists.
"""
