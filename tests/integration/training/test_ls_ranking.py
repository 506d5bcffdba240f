"""The ranking loss, and how held-out rankings are put together."""

from __future__ import annotations

import pytest
import torch

from claimscore.training.ls_ranking import KindShares, Ranked, ranking_loss, summarise

KINDS = ("delete", "disorder_words", "add")


def test_ranking_loss_by_hand() -> None:
    """Hinges of margin 1: on LS for all, or on L and on S for those that they concern."""
    linguistic, semantic = torch.tensor([2.0, 1.5, 0.0, 3.0]), torch.tensor([0.8, 0.6, 0.1, 0.9])
    on_all = (1 - 0.7) + 0 + (1 + 1.1)
    assert float(ranking_loss(linguistic, semantic, KINDS, "paper")) == pytest.approx(on_all)
    on_l = (1 - 0.5) + 0
    on_s = (1 - 0.2) + (1 + 0.1)
    assert float(ranking_loss(linguistic, semantic, KINDS, "code")) == pytest.approx(on_l + on_s)


def test_shares_by_kind_by_hand() -> None:
    """How often each kind is below, by the score and its parts; a tie is not below."""
    first = Ranked(
        KINDS,
        torch.tensor(2.0),
        torch.tensor([3.0, 2.0, 3.0, 1.0]),
        torch.tensor([1.0, 2.0, 0.0, 0.0]),
        torch.tensor([2.0, 0.0, 3.0, 1.0]),
    )
    second = Ranked(("delete",), torch.tensor(1.0), *[torch.tensor([3.0, 2.0])] * 3)
    loss, first_share, kinds = summarise([first, second])
    assert (loss, first_share) == (1.5, 0.5)
    assert kinds == (
        KindShares("delete", 2, 1.0, 0.5, 1.0),
        KindShares("disorder_words", 1, 0.0, 1.0, 0.0),
        KindShares("add", 1, 1.0, 1.0, 1.0),
    )


def test_a_linear_head_has_no_parts() -> None:
    """Null, not a number."""
    result = Ranked(("add",), torch.tensor(0.5), torch.tensor([1.0, 0.5]))
    assert summarise([result]).kinds == (KindShares("add", 1, 1.0, None, None),)
