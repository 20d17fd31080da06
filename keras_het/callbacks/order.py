"""The place of a callback among those of one `fit`."""

import inspect

import keras


def move(callback: keras.callbacks.Callback, last: bool) -> None:
    """Makes a callback the first or last of the `CallbackList` that is calling it; the running loop keeps its order.

    Keras tells a callback nothing of the others, and calls them in their order: a logger before the monitor would write
    its row too early. Only the caller knows the list, so it is looked for there. Where Python keeps no frames, the
    order stays.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            caller.callbacks = sorted(caller.callbacks, key=lambda other: (other is callback) == last)
            return
        frame = frame.f_back
