"""How near the probabilities of a model are to the distributions of people's labels."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import entr
from scipy.stats import spearmanr

from keras_het.base.batches import check_same_index
from keras_het.base.refusal import refuse_if
from keras_het.base.tables import Titled
from keras_het.base.validation import check_class_names
from keras_het.label_noise.estimation import check_distributions
from keras_het.label_noise.label_shares import label_shares
from keras_het.ops.transition import SMALLEST


@dataclasses.dataclass(frozen=True)
class DistributionScores(Titled):
    """How near the probabilities of a model are to the distributions of people's labels; prints in plain words.

    Attributes:
        cross_entropy: mean of -sum_k d_k log p_k, in nats; the negative log-likelihood of a label of a random person.
        entropy: mean entropy of people's distributions, in nats: the least cross-entropy.
        kl: their difference, the mean Kullback-Leibler divergence from d to p, in nats; by chance it may be below 0.
        total_variation: mean of sum_k |d_k - p_k| / 2, in [0, 1].
        entropy_correlation: rank correlation (Spearman) of the entropies of p and d: is the model unsure where people
            disagree? nan where one of them is always the same.
        top: fraction of predictions that are a most frequent label.
        error: standard error of the cross-entropy.
        notes: (title, text) of what the scores rest on.
    """

    cross_entropy: float
    entropy: float
    kl: float
    total_variation: float
    entropy_correlation: float
    top: float
    error: float
    notes: tuple[tuple[str, str], ...]

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the scores."""
        return [
            ("cross-entropy to people", f"{self.cross_entropy:.4f} +- {self.error:.4f} nats"),
            ("entropy of people", f"{self.entropy:.4f} nats, the least cross-entropy"),
            ("divergence (KL) from people", f"{self.kl:.4f} nats"),
            ("total variation", f"{self.total_variation:.3f}"),
            ("rank correlation of entropies", f"{self.entropy_correlation:.3f}"),
            ("prediction is a most frequent label", f"{self.top:.3f}"),
            *self.notes,
        ]


def distribution_scores(probabilities: Any, labels: Any, class_names: Sequence | None = None) -> DistributionScores:
    """How near the probabilities p of a model are to people's distributions d, of several labels of each example.

        cross-entropy = mean of -sum_k d_k log p_k = entropy of d + KL(d || p)

    The cross-entropy is that of a label of a random person, whatever the number of labels. Of m labels, the entropy of
    their fractions is too small by about (k - 1) / (2 m), with k classes that occur among them, which is added. With
    fewer than some ten labels that is too little, and `kl` is too large: compare models on the same labels by it. It is
    not added for distributions, whose m nobody knows. The rank correlation is pulled to 0 by few labels, and so is the
    best that a model can reach.

    Args:
        probabilities: probabilities of held-out examples, `(N, K)`, each row of sum 1.
        labels: votes `(N, M)`, integers, -1 for none, or names, or `label_noise.Votes`; or floats `(N, K)`: counts,
            whole numbers, or distributions of sum 1.
        class_names: names of the K classes in the order of the probabilities, for votes that are names; or None.
    Returns:
        `DistributionScores`; print it.
    Raises:
        ValueError: for other shapes or values, or an example without any label.
    Source: Peterson, Battleday, Griffiths and Russakovsky, "Human uncertainty makes classification more robust", ICCV
        2019, for the cross-entropy; Miller 1955, "Note on the bias of information estimates", for the entropy.

    Example:
        >>> p = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]
        >>> found = distribution_scores(p, [[9.0, 1.0], [6.0, 4.0], [1.0, 9.0]])
        >>> round(found.cross_entropy, 4), round(found.entropy, 4), round(found.entropy_correlation, 3)
        (0.46, 0.4911, 0.866)
    """
    check_same_index(probabilities=probabilities, labels=labels)
    p = check_distributions(probabilities)
    names = None if class_names is None else np.asarray(check_class_names(class_names, p.shape[1]))
    d, totals = label_shares(labels, p.shape[1], classes=names)
    refuse_if(len(d) != len(p), "labels", f"have a row for each of the {len(p)} examples", len(d))
    own, entropy = -(d * np.log(np.maximum(p, SMALLEST))).sum(axis=1), entr(d).sum(axis=1)
    notes = [("labels", "distributions: their entropy is as it is")]
    if totals is not None:
        entropy = entropy + ((d > 0).sum(axis=1) - 1.0) / (2.0 * totals)
        notes = [
            ("labels", f"{totals.sum():,} of {len(p):,} examples; the entropy of few is corrected for their number")
        ]
    most = d >= d.max(axis=1, keepdims=True) - 1e-9
    return DistributionScores(
        cross_entropy=float(own.mean()),
        entropy=float(entropy.mean()),
        kl=float(own.mean() - entropy.mean()),
        total_variation=float(np.abs(d - p).sum(axis=1).mean() / 2.0),
        entropy_correlation=_rank_correlation(entr(p).sum(axis=1), entr(d).sum(axis=1)),
        top=float(most[np.arange(len(p)), p.argmax(axis=1)].mean()),
        error=float(own.std(ddof=1) / np.sqrt(len(p))) if len(p) > 1 else float("nan"),
        notes=tuple(notes),
    )


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's correlation; nan where one is constant."""
    first, second = (np.round(each, 12) for each in (first, second))
    return float("nan") if np.ptp(first) == 0 or np.ptp(second) == 0 else float(spearmanr(first, second).statistic)
