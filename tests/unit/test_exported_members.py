"""The public names, and that they are the things themselves."""

from __future__ import annotations

import importlib

import pytest

import claimscore


@pytest.mark.parametrize("name", claimscore.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """A name in `__all__` is loaded from its home when it is used."""
    home = importlib.import_module(claimscore._HOMES[name])
    assert getattr(claimscore, name) is getattr(home, name)


def test_all_and_the_homes_agree() -> None:
    """Type checkers read `__all__`, the interpreter the homes."""
    assert sorted(claimscore._HOMES) == sorted(claimscore.__all__)
    assert set(claimscore.__all__) <= set(dir(claimscore))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = claimscore.nonsense
