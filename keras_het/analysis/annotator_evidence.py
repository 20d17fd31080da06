"""What labels alone say of each annotator: intervals of accuracy and separation, and evidence of a spammer.

The model, beside T: the chance of a right label of annotator m on class i is drawn from a Beta distribution with mean

    r_mi = sigmoid(logit(pooled_ii) + d_m),    d_m from N(nu, tau^2),

and a strength s, the same for all; wrong labels are in the proportions of all annotators. nu, tau and s are not known,
and are drawn from their posterior on a grid. The likelihood of d_m is of the labels of m, by what the others say of the
classes; so a label beside which others leave the class open says little. After some draws the T of all annotators are
drawn anew, so that the error of what the others say is in the intervals too.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import betaln, expit, gammaln, logit, logsumexp, softmax

FLOOR = 1e-6  # of a probability: a label that T holds for impossible must not decide alone
ROUNDS, DRAWS, SIZE = 8, 60, 0.05  # of T, of figures for each T, and of figures outside of an interval
STEP = 0.25
SHIFTS = np.arange(-6.0, 6.0 + STEP / 2, STEP)  # d
CENTERS, SPREADS = np.linspace(-1.2, 1.2, 9), np.array([0.15, 0.25, 0.4, 0.6, 0.9, 1.3, 2.0, 3.0])  # nu, tau
STRENGTHS = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0])  # s
SPAMMER = 0.05  # below this separation an annotator's labels say hardly anything of the class
RATIO, SURE = 20.0, 2.58  # times likelier of a spammer than of a good one; standard deviations of a test at 1%
GOOD = 0.75  # quantile of d of an annotator who is taken for good


class Evidence(NamedTuple):
    """What is known of M annotators.

    Attributes:
        accuracy: low end of a 95% interval, mean, and high end, `(M, 3)`.
        separation: the same, `(M, 3)`.
        spammers: true of those who are taken for spammers, `(M,)`: see `Annotator.is_spammer`.
    """

    accuracy: np.ndarray
    separation: np.ndarray
    spammers: np.ndarray


def evidence(transitions: np.ndarray, labels: np.ndarray, prior: np.ndarray) -> Evidence:
    """The `Evidence` of labels `(N, M)`, -1 where there is none; T `(M, K, K)` are where it begins."""
    votes, rng = _Votes(labels, len(prior)), np.random.default_rng(0)
    begun, figures = _Fit(votes, transitions), []
    for _ in range(ROUNDS):
        right, wrong = _Fit(votes, transitions).draw(rng)
        figures.append((right @ prior, separation_of(right, wrong)))
        transitions = (1.0 - right[:, 0, :, None]) * wrong + right[:, 0, :, None] * np.eye(len(prior))
    accuracy, separation = (np.concatenate(each, axis=1) for each in zip(*figures, strict=True))
    accuracy, separation = _interval(accuracy), _interval(separation)
    unlike = (np.abs(begun.dependence()) >= SURE) & (separation[:, 2] >= SPAMMER)
    return Evidence(accuracy, separation, (begun.log_ratio() > np.log(RATIO)) & ~unlike)


def _interval(draws):
    low, high = np.quantile(draws, [SIZE / 2, 1 - SIZE / 2], axis=1)
    return np.stack([low, draws.mean(axis=1), high], axis=1)


def separation_of(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Separation of each draw, `(M, D)`: of T with diagonals `right`, `(M, D, K)`, beside `wrong` labels, `(M, K, K)`.

    With half squared distances of rows by their inner products.
    """
    size, left = right.shape[2], 1.0 - right
    squares = np.square(right) + np.square(left) * np.square(wrong).sum(axis=2)[:, None]
    return (size * squares.sum(axis=2) - np.square(right + left @ wrong).sum(axis=2)) / (size * (size - 1))


class _Votes:
    """Labels as a list, and sparse matrices that sum over it: by example, and by annotator and label."""

    def __init__(self, labels, size):
        self.size, self.annotators = size, labels.shape[1]
        self.example, self.who = np.nonzero(labels >= 0)
        self.label, self.places = labels[self.example, self.who], np.arange(len(self.who))
        self.by_example = self._sums(self.example, len(labels))
        self.by_label = self._sums(self.who * size + self.label, self.annotators * size)
        self.by_annotator = self._sums(self.who, self.annotators)
        self.labelled, self.log_prior = np.unique(self.example), np.zeros(size)

    def _sums(self, rows, count):
        return scipy.sparse.csr_array((np.ones(len(rows)), (rows, self.places)), shape=(count, len(rows)))

    def classes(self, transitions):
        """p(class | labels of the example) by all labels, and by those of the others, both `(V, K)`."""
        own = np.log(np.maximum(transitions, FLOOR))[self.who, :, self.label]
        joint = self.by_example @ own
        for _ in range(5):  # and five more for the next T
            shares = softmax(self.log_prior + joint[self.labelled], axis=1).mean(axis=0)
            self.log_prior = np.log(np.maximum(shares, FLOOR))
        joint = (self.log_prior + joint)[self.example]
        return softmax(joint, axis=1), softmax(joint - own, axis=1)


class _Fit:
    """Counts of labels by class, and the likelihood of d of each annotator, by T of all."""

    def __init__(self, votes, transitions):
        self.votes, size, other = votes, votes.size, 1.0 - np.eye(votes.size)
        p, self.others = votes.classes(transitions)
        clear = (size * self.others.max(axis=1) - 1) / (size - 1)
        counts = votes.by_label @ (p * np.square(clear)[:, None])  # so much is left of the information of a share
        self.counts = counts.reshape(-1, size, size).swapaxes(1, 2)
        pooled = self.counts.sum(axis=0) + 1.0 / size
        wrong = (pooled + 0.02 * pooled.sum(axis=1, keepdims=True) / size) * other
        self.wrong = wrong / wrong.sum(axis=1, keepdims=True)
        right = np.clip(pooled.diagonal() / pooled.sum(axis=1), 1e-3, 1 - 1e-3)
        self.right = np.clip(expit(logit(right) + SHIFTS[:, None]), 1e-4, 1 - 1e-4)  # (G, K)
        self.log_likelihood = self._of_shifts()
        priors = [-0.5 * np.square((SHIFTS - nu) / tau) for nu in CENTERS for tau in SPREADS]
        self.log_priors = priors - logsumexp(priors, axis=1, keepdims=True)
        evidence_of = logsumexp(self.log_likelihood[:, None] + self.log_priors, axis=2).sum(axis=0)
        self.weights = softmax(evidence_of)

    def _of_shifts(self):
        """Log-likelihood of the labels of each annotator for each d, `(M, G)`."""
        label, q = self.votes.label, self.others
        flips, rights = q * self.wrong[:, label].T, q[self.votes.places, label]
        values = [
            self.votes.by_annotator @ np.log(rights * right[label] + flips @ (1.0 - right) + 1e-12)
            for right in self.right
        ]
        return np.stack(values, axis=1)

    def _of_strengths(self):
        """The posterior of s, by the counts of right and wrong labels of each class."""
        rights, right = self.counts.diagonal(axis1=1, axis2=2), self.right[::3]
        wrongs, log_prior, found = self.counts.sum(axis=2) - rights, self.weights @ np.exp(self.log_priors[:, ::3]), []
        for strength in STRENGTHS:
            a, b = strength * right[:, None], strength * (1.0 - right[:, None])
            of_shifts = (betaln(rights + a, wrongs + b) - betaln(a, b)).sum(axis=2)
            found.append(logsumexp(of_shifts + np.log(log_prior + 1e-300)[:, None], axis=0).sum())
        return softmax(found)

    def draw(self, rng):
        """Draws of p(right label | class), `(M, D, K)`, and the proportions of wrong labels, `(M, K, K)`."""
        strengths = rng.choice(STRENGTHS, size=DRAWS, p=self._of_strengths())[:, None]
        priors = self.log_priors[rng.choice(len(self.weights), size=DRAWS, p=self.weights)]
        chances = softmax(self.log_likelihood[:, None] + priors, axis=2).cumsum(axis=2)
        places = (chances < rng.random((*chances.shape[:2], 1))).sum(axis=2).clip(max=len(SHIFTS) - 1)
        jitter = STEP * (rng.random(places.shape) - 0.5)
        mean = np.clip(expit(logit(self.right[places]) + jitter[..., None]), 1e-4, 1 - 1e-4)
        rights = self.counts.diagonal(axis1=1, axis2=2)
        wrongs = self.counts.sum(axis=2) - rights
        right = rng.beta(strengths * mean + rights[:, None], strengths * (1.0 - mean) + wrongs[:, None])
        size = self.votes.size
        wrong = self.counts * (1.0 - np.eye(size)) + size * self.wrong
        return right, wrong / wrong.sum(axis=2, keepdims=True)

    def log_ratio(self):
        """Logarithm of how many times likelier the labels are of a spammer than of a good annotator, `(M,)`."""
        some = self.votes.by_annotator.sum(axis=1) > 0
        log_prior = np.log(self.weights @ np.exp(self.log_priors) + 1e-300)
        shifts = softmax(self.log_likelihood + log_prior, axis=1) @ SHIFTS
        good = np.abs(SHIFTS - np.quantile(shifts[some], GOOD)).argmin()
        return self._of_spammers() - self.log_likelihood[:, good]

    def _of_spammers(self):
        """Log-likelihood of labels that do not depend on the class, in proportions near those of all labels, `(M,)`."""
        size, counts = self.votes.size, self._label_counts()
        shares, totals = (counts.sum(axis=0) + 1) / (counts.sum() + size), counts.sum(axis=1)
        found = []
        for strength in (size / 2, 2 * size, 10 * size):
            a = strength * shares
            found.append(
                (gammaln(counts + a) - gammaln(a)).sum(axis=1) + gammaln(strength) - gammaln(totals + strength)
            )
        return logsumexp(found, axis=0) - np.log(len(found))

    def dependence(self):
        """How often labels are what others say, beside the same labels in any order, in standard deviations, `(M,)`.

        The variance over all orders is that of Hoeffding 1951, "A combinatorial central limit theorem".
        """
        votes, counts = self.votes, self._label_counts()
        totals = np.maximum(counts.sum(axis=1), 1.0)
        means, shares = (votes.by_annotator @ self.others) / totals[:, None], counts / totals[:, None]
        x = self.others - means[votes.who]
        x -= (shares[votes.who] * x).sum(axis=1, keepdims=True)
        agreement = votes.by_annotator @ x[votes.places, votes.label]
        variance = votes.by_annotator @ (shares[votes.who] * x * x).sum(axis=1) * totals / np.maximum(totals - 1, 1.0)
        return agreement / np.sqrt(np.maximum(variance, 1e-12))

    def _label_counts(self):
        return self.votes.by_label.sum(axis=1).reshape(-1, self.votes.size)
