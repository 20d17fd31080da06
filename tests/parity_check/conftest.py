"""Recordings without collections of garbage, which are slow beside all that Keras and its backends have imported."""

import gc

import pytest


@pytest.fixture(scope="package", autouse=True)
def no_collections():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: 0)
        yield
