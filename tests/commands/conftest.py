"""Fixtures of the tests of commands."""

from reproduced import done, no_training  # noqa: F401 (fixtures)
