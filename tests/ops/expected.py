"""What a head with nodes computes, from its parts."""

from keras_het.ops.low_rank import low_rank_normal
from keras_het.ops.sigmoid import SigmoidMean
from keras_het.ops.softmax import SoftmaxMean, without_shift
from keras_het.ops.streaming import expectation

PLAIN = {"chunk_size": 1 << 20, "streamed": False}  # all nodes at once, and no gradient of its own


def log_expected_softmax(
    loc, scale_diag, factor, nodes, temperature=1.0, row_scale=None, chunk_size=None, streamed=True
):
    """log E[softmax(u / temperature)], u = loc + scale_diag * e_K + row_scale * (factor e_R), `(..., K)`."""
    normal = low_rank_normal(loc, scale_diag, factor, row_scale).standardized(without_shift, temperature)
    return expectation(SoftmaxMean(), normal, nodes, chunk_size, streamed)


def sampled_expected_sigmoid_logit(
    loc, scale_diag, factor, nodes, temperature=1.0, row_scale=None, chunk_size=None, streamed=True
):
    """The logit of E[sigmoid(u / temperature)], of the same u."""
    normal = low_rank_normal(loc, scale_diag, factor, row_scale).standardized(temperature=temperature)
    return expectation(SigmoidMean(), normal, nodes, chunk_size, streamed)
