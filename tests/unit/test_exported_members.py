"""The public names, and that they are the things themselves."""

import pytest

import claimscore


def test_every_public_name_is_there() -> None:
    """A name in `__all__` is loaded from its home when it is used."""
    assert set(claimscore.__all__) <= set(dir(claimscore))
    assert all(getattr(claimscore, name) is not None for name in claimscore.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = claimscore.nonsense
