"""The browser of these tests."""

from tests.chromium import browser

__all__ = ["browser"]  # a fixture
