"""Links of exclusive classes that have a closed form: the mean of a function of each logit, normalised over the
classes.
"""

from typing import Any

import keras
from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.links.link import Link
from keras_het.ops.log_space import log_ndtr
from keras_het.ops.mean import LOG_NORMAL_CDF_MEAN, LOG_SIGMOID_MEAN
from keras_het.ops.sigmoid import log_expected_sigmoid


class _Normalized(Link):
    """log p_k = log E[a(u_k)] - log sum_j E[a(u_j)]."""

    def from_mean(self, value: Tensor) -> Any:
        return ops.log_softmax(value, axis=-1)


@keras.saving.register_keras_serializable("keras_het")
class NormalizedSigmoid(_Normalized):
    """Sigmoids, normalised over the classes: for one label per example, without nodes in training or prediction.

        p_k = E[sigmoid(u_k / temperature)] / sum_j E[sigmoid(u_j / temperature)]

    The expectations are in closed form; the error of their logs is below 1e-4. Only the variance of each logit counts,
    not the correlations. The head returns log-probabilities.

    Source: Mucsanyi, Da Costa and Hennig 2025 (arXiv 2502.03366); the expectation is
        `keras_het.ops.sigmoid.log_expected_sigmoid`.

    Example:
        >>> NormalizedSigmoid().returns
        'log-probabilities'
    """

    mean = LOG_SIGMOID_MEAN

    def closed_form(self, normal: Any) -> Any:
        """Log-probabilities, `(..., K)`."""
        return self.from_mean(log_expected_sigmoid(normal.loc, normal.variance())[0])


@keras.saving.register_keras_serializable("keras_het")
class NormalCDF(_Normalized):
    """Normal distribution functions, normalised over the classes: for one label per example, without nodes.

        p_k = E[Phi(u_k / temperature)] / sum_j E[Phi(u_j / temperature)],    E[Phi(u)] = Phi(mean / sqrt(1 + variance))

    The formula is exact. Only the variance of each logit counts, not the correlations. The head returns
    log-probabilities. Nodes are only for comparison: log Phi is near -u^2/2, so their gradient loses digits beyond
    |u| = 100. The closed form keeps them.

    Source: Mucsanyi, Da Costa and Hennig 2025 (arXiv 2502.03366).

    Example:
        >>> NormalCDF().returns
        'log-probabilities'
    """

    mean = LOG_NORMAL_CDF_MEAN

    def closed_form(self, normal: Any) -> Any:
        """Log-probabilities, `(..., K)`."""
        return self.from_mean(log_ndtr(normal.loc / ops.sqrt(1.0 + normal.variance())))
