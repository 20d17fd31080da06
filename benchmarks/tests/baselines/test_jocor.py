"""JoCoR: the tests of the losses that keep small losses, with its own oracle, and what it alone promises."""

import numpy as np
import pytest

from benchmarks.baselines import JoCoR
from benchmarks.tests.baselines import test_peer_networks as peers
from benchmarks.tests.baselines import test_selecting as selecting
from benchmarks.tests.baselines.rerun import of_other_cases
from benchmarks.tests.baselines.test_selecting import LABELS, LOGITS, made, number

pytestmark = pytest.mark.once


def joint(each, log_p):
    """The crossentropies of both networks, and the divergences of each from the other."""
    p = np.exp(log_p)
    divergences = [np.sum(p[:, m] * (log_p[:, m] - log_p[:, 1 - m]), axis=-1) for m in (0, 1)]
    return 0.3 * sum(each) + 0.7 * sum(divergences)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """The tests of the package look their cases up by name."""
    monkeypatch.setitem(selecting.KINDS, "JoCoR", lambda **kwargs: JoCoR(strength=0.7, **kwargs))
    monkeypatch.setitem(selecting.JOINT, "JoCoR", joint)


globals().update(of_other_cases(selecting, "kind", ["JoCoR"]))


def test_limits_that_the_paper_states():
    first = selecting.oracle("self-paced", LOGITS[:, 0], LABELS)[0].mean()
    equal = np.stack([LOGITS[:, 0]] * 2, axis=1)
    assert number(made("JoCoR", kept_share=1.0)(LABELS, equal)) == pytest.approx(0.3 * 2 * first, rel=1e-6)
    assert number(made("JoCoR")(LABELS, LOGITS[:, :1])) == pytest.approx(first, rel=1e-6)


def test_metrics_and_validation_of_two_networks_are_those_of_the_mean():
    peers.test_metrics_and_validation_are_those_of_the_mean(JoCoR, peers.LABELS[:, None])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: JoCoR(0.5, strength=1.5), "`strength` must be in [0, 1]. Received: strength=1.5"),
        (
            lambda: made("JoCoR")(LABELS, LOGITS[:, 0]),
            (
                "`y_pred` must have shape (B, 2, K), those of two networks, as of benchmarks.baselines.PeerNetworks. "
                "Received: shape (11, 4)"
            ),
        ),
        (
            lambda: made("JoCoR")(LABELS, LOGITS, np.ones((11, 2))),
            "`sample_weight` must have shape (B,) or (B, 1). Received: shape (11, 2)",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)
