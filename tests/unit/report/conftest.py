"""A made-up run, for each test that asks."""

from tests.support.made_up_run import made_up

__all__ = ["made_up"]
