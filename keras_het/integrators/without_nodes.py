"""Integrators without nodes: the closed form of a link, its expansion, and one integral for independent noise."""

from typing import Any

import keras
from keras import ops

from keras_het.base.validation import check_integer
from keras_het.integrators.integrator import Integrator
from keras_het.links import Link
from keras_het.ops.quadrature import GumbelNormal, points
from keras_het.ops.streaming import expectation


@keras.saving.register_keras_serializable("keras_het")
class ClosedForm(Integrator):
    """The closed form of a link that has one, without nodes in training or prediction; the default of such links.

    Source: the link's `closed_form`.

    Example:
        >>> ClosedForm()
        ClosedForm()
    """

    needs = "closed_form"

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        return link.closed_form(normal)


@keras.saving.register_keras_serializable("keras_het")
class Taylor(Integrator):
    """E[softmax] to second order in the noise: no nodes, in O(K R), for small noise.

    The error falls with the fourth power of the noise, and is large from a standard deviation of about one temperature
    on. Do not train the noise with this integrator: the expansion has no upper bound, so training makes the noise grow
    to where the expansion is wrong. Use it for the predictions of a head that was trained by nodes and has small noise,
    or for a covariance that is not trained.

    Source: Collier et al. 2021, Appendix C; `keras_het.ops.softmax.second_order_log_softmax`.

    Example:
        >>> Taylor()
        Taylor()
    """

    needs = "second_order"

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        return link.second_order(normal)


@keras.saving.register_keras_serializable("keras_het")
class Quadrature(Integrator):
    """E[softmax] of a diagonal head by one integral over the largest logit, without noise in training or prediction.

        p_k = integral of f_k(t) prod over j != k of F_j(t) dt,      F_j, f_j: the law of u_j + G_j, G_j standard Gumbel

    The softmax of u is the probability that u_k + G_k is the largest. The points t span the range of the largest, which
    follows each example's noise; they are closer together where little noise counts.

    The error of log p with 24 points is about 1e-3 for p > 0.01, also for noise of a tenth of a temperature beside
    noise of 30, and below 0.03 down to p = 1e-6. It is about ten times larger with 12 points, and fewer than eight are
    of no use. A step takes 1.4 to 2.2 times as long as with 256 nodes. A prediction takes about as long (on PyTorch 3.6
    times). Both take longer to compile.

    Args:
        num_nodes: number of points of the integral, in training and prediction.
    Source: the law of the largest, McFadden 1974; the Gumbel law as ten normal ones, Fruehwirth-Schnatter and
        Fruehwirth 2007.

    Example:
        >>> Quadrature(16)
        Quadrature(num_nodes=16)
    """

    needs = "largest"

    def __init__(self, num_nodes: int = 24) -> None:
        self.num_nodes = check_integer("num_nodes", num_nodes, 2, 1 << 12)

    def check(self, link: Link, units: int, num_factors: int) -> None:
        super().check(link, units, num_factors)
        if num_factors:
            raise ValueError(
                "`integrator` must be another than Quadrature, such as QuasiMonteCarlo, for noise with factors: it is "
                f"for heads of `num_factors=0`. Received: num_factors={num_factors}"
            )

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        logits = GumbelNormal.of(normal, self.num_nodes)
        mean = expectation(link.largest, logits, points(self.num_nodes), loop="unrolled" if key is None else "streamed")
        return link.from_mean(ops.log_softmax(mean, axis=-1))

    def get_config(self) -> dict[str, Any]:
        return {"num_nodes": self.num_nodes}
