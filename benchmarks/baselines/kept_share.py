"""A callback that lowers the share of examples that a loss keeps."""

from typing import Any

import keras

from benchmarks.baselines.selecting import SelectingCrossentropy
from keras_het.base.validation import check_integer, check_number
from keras_het.reading.check import judge, leaves


class KeptShare(keras.callbacks.Callback):
    """Lowers, epoch by epoch, the share of examples that `CoTeaching`, `JoCoR` or `SelfPacedCrossentropy` learns from.

        R = 1 - tau min((T / T_k)^c, 1),  T = 0, 1, ...        (Han et al. 2018, Algorithm 1; there c = 1)

    tau is 1 - `kept_share` of the loss. The first epoch keeps all examples, and from epoch T_k on the share is 1 - tau.
    The share depends on the epoch alone, so a resumed run (`initial_epoch` or `BackupAndRestore`) goes on unchanged. In
    validation, and after training, the share is 1, so that `val_loss` is the loss of all examples. The logs of an epoch
    have its share as `kept_share`, the mean if there are several losses. Put the callback before the callbacks that use
    its logs: Keras calls them in the order of the list.

    Args:
        num_epochs: T_k, epochs until the share is reached; 0 starts with it.
        exponent: c > 0.
        burn_in: epochs before T = 0 that keep all examples.
    Raises:
        ValueError: for other arguments, a model whose loss keeps no share, or a loss that is not attached.
    Source: Han et al., NeurIPS 2018. Their code counts epochs from 0, as here, and reaches 1 - tau one epoch earlier.

    Example:
        >>> [round(KeptShare(num_epochs=4).share(epoch, kept_share=0.6), 2) for epoch in range(6)]
        [1.0, 0.9, 0.8, 0.7, 0.6, 0.6]
    """

    def __init__(self, num_epochs: int = 10, *, exponent: float = 1.0, burn_in: int = 0):
        super().__init__()
        self.num_epochs = check_integer("num_epochs", num_epochs, 0)
        self.exponent = check_number("exponent", exponent, above=0.0)
        self.burn_in = check_integer("burn_in", burn_in, 0)

    def share(self, epoch: int, kept_share: float) -> float:
        """R of an epoch, counted from 0, for a loss that keeps this share at the end.

        Args:
            epoch: counted from 0.
            kept_share: the share that the loss keeps at the end.
        """
        waited = epoch - self.burn_in
        if waited < 0:
            return 1.0
        done = min(waited / self.num_epochs, 1.0) if self.num_epochs else 1.0
        return 1.0 - (1.0 - kept_share) * done**self.exponent

    @property
    def losses(self) -> list[SelectingCrossentropy]:
        """The losses of the model that keep a share; there must be at least one."""
        losses = [loss for loss in leaves(getattr(self.model, "loss", None)) if isinstance(loss, SelectingCrossentropy)]
        if not losses:
            rule = "have a loss that keeps a share of the examples, such as benchmarks.baselines.CoTeaching"
            raise ValueError(
                f"The model must {rule}. Received: model={self.model.name!r}, "
                f"loss={getattr(self.model, 'loss', None)!r}"
            )
        return losses

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        judge(self.model)
        for loss in self.losses:
            loss.check_attached()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.progress = epoch / max((self.params or {}).get("epochs") or 1, 1)
        self.now = [self.share(epoch, loss.final_share) for loss in self.losses]
        self._set(self.now)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["kept_share"] = sum(self.now) / len(self.now)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._keep_all()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self._set(getattr(self, "now", None) or [1.0] * len(self.losses))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.now = []
        self._keep_all()

    def _keep_all(self) -> None:
        self._set([1.0] * len(self.losses))

    def _set(self, shares: list[float]) -> None:
        for loss, share in zip(self.losses, shares, strict=True):
            loss.set_epoch(share, getattr(self, "progress", 0.0))
