"""The base class of integrators: rules for the expectation of a link under the Gaussian of the logits."""

from typing import Any

from keras_het.base.choices import Choice
from keras_het.base.refusal import refusal
from keras_het.links import Link


class Integrator(Choice):
    """Base class: a rule for the expectation of a link, such as E[softmax(u)], under a Gaussian of logits.

    A subclass defines `integrate`. Its `needs` names the attribute that a link must have: "mean" (the function averaged
    over nodes), "closed_form" or "second_order". Its `get_config` returns the arguments of its constructor.
    """

    needs = ""

    def check(self, link: Link, units: int, num_factors: int) -> None:
        """Raises ValueError if this rule does not fit the link, or does not fit it at this size.

        Args:
            link: link of the head.
            units: K, the number of classes.
            num_factors: R.
        """
        if not self.needs:
            raise NotImplementedError(
                f"{type(self).__name__} must say in `needs` which attribute a link must have for it"
            )
        if getattr(link, self.needs, None) is None:
            fitting = ", ".join(kind.__name__ for kind in _kinds(Link) if getattr(kind, self.needs, None) is not None)
            known = f"be one of {fitting}, or " if fitting else ""
            rule = f"{known}have `{self.needs}` of its own, for the integrator {type(self).__name__}"
            raise refusal("link", rule, value=link)

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        """The expectation, as the link returns it, `(..., K)`.

        Args:
            link: the link that is averaged.
            normal: distribution of the logits, a `Normal` of `keras_het.ops.normal`, in temperatures, centred
                by the link; its `size` has the numbers of entries of the nodes.
            key: (seed, step) for fresh noise in training; None at inference, where the result is a fixed function of
                `normal`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define integrate(link, normal, key)")

    def prepare(self, units: int, num_factors: int) -> None:
        """Computes constants on the host when a layer is built, so that no compiler has to trace them.

        Args:
            units: K, the number of classes.
            num_factors: R.
        """


def _kinds(base: type[Any]) -> list[type[Any]]:
    """All subclasses, also the user's own."""
    return [kind for child in base.__subclasses__() for kind in (child, *_kinds(child))]
