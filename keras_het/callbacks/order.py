"""The place of a callback among those of one `fit`."""

import inspect

import keras


def move(callback: keras.callbacks.Callback, last: bool) -> None:
    """Makes a callback the first or last of the `CallbackList` that has just called it, whose loop goes on with the
    list that it had.

    Keras tells a callback nothing of the others, and calls them in their order: a logger before the monitor would write
    its row too early. The list is known only to who calls, so it is looked for there; where Python keeps no frames, the
    order stays.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            caller.callbacks = sorted(caller.callbacks, key=lambda other: (other is callback) == last)
            return
        frame = frame.f_back
