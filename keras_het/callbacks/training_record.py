"""Record of a training run: margins and probabilities of the examples."""

import numpy as np

from keras_het.base.batches import row_blocks

MAX_VALUE = float(np.finfo("float16").max)  # bound of margins and losses
MIN_EPOCH_WEIGHT = 1e-6  # else the weights of a run without any loss would sum to zero


class TrainingRecord:
    """Sums over the epochs of a training run: of the margins, `(N,)`, and of p(j | x), `(N, K)`.

    The weight of an epoch is the mean loss after it, w_t = L_t + 1e-6. Once the model has memorised the labels it
    agrees with all of them, and equal weights would let these epochs dominate.
    """

    def __init__(self, labels: np.ndarray, units: int, *, first: int = 0, keeps_history: bool = True):
        count = len(labels)
        self.labels, self.units, self.first, self.keeps_history = labels, units, first, keeps_history
        self.epochs = 0
        self.margin_sum = np.zeros(count)
        self.probability_sum = np.zeros((count, units), "float32")
        self.epoch_losses: list[float] = []
        self.margins: list[np.ndarray] = []

    def update(self, log_p: np.ndarray) -> None:
        """Adds an epoch with its log-probabilities, `(N, K)`."""
        margins, losses = np.empty(len(log_p)), np.empty(len(log_p))
        parts = row_blocks(len(log_p))
        for part in parts:
            margins[part], losses[part] = margins_and_losses(log_p[part], self.labels[part])
        self.epoch_losses.append(float(losses.mean()))
        weight = self.weights[-1]
        for part in parts:
            self.probability_sum[part] += np.float32(weight) * np.exp(log_p[part])
        self.margin_sum += weight * margins
        self.epochs += 1
        if self.keeps_history:
            self.margins.append(margins.astype("float16"))

    @property
    def weights(self) -> np.ndarray:
        return np.array(self.epoch_losses) + MIN_EPOCH_WEIGHT

    @property
    def mean_margin(self) -> np.ndarray:
        return self.margin_sum / self.weights.sum()

    @property
    def mean_probabilities(self) -> np.ndarray:
        return self.probability_sum / self.probability_sum.sum(axis=1, keepdims=True)


def margins_and_losses(log_p: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the margins log p_y - max_{j != y} log p_j and the losses -log p_y, clipped to float16's range."""
    rows, rest = np.arange(len(log_p)), log_p.copy()
    log_p_label = log_p[rows, labels].astype("float64")
    rest[rows, labels] = -np.inf
    margins = np.clip(log_p_label - rest.max(axis=1), -MAX_VALUE, MAX_VALUE)
    return margins, np.clip(-log_p_label, 0.0, MAX_VALUE)
