"""The rows hold together: whoever is compared takes part, and can be started."""

from __future__ import annotations

import pytest
from models import SHAPES
from overlap import Took, beyond
from overlap import line as overlap_line
from own import padding_line, peers_padding, tokens_needed
from rows import OWN, ROWS, Row
from workers import CLIENTS, HERE, cores, python_of


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_compare_those_who_take_part(row: Row) -> None:
    """claimscore first; clients, models and names are known, and no name is there twice."""
    names = [variant.name for variant in row.variants]
    assert names[0] == OWN
    assert len(set(names)) == len(names)
    assert {comparison.beside for comparison in row.comparisons} <= {*names, None}
    assert {variant.client for variant in (*row.variants, row.reference)} <= set(CLIENTS)
    assert row.model in {*SHAPES, "minilm"}
    for variant in row.variants:
        assert variant.tune is None or variant.tune[0] in variant.options


def test_default_and_best_share_a_loaded_model() -> None:
    """They differ in options, not in the job; another dtype is another process."""
    w1, gpu = (next(row for row in ROWS if row.name == name) for name in ("w1", "gpu-w1"))
    by_name = {variant.name: variant.worker for variant in w1.variants}
    assert by_name["CrossEncoder default"] == by_name["CrossEncoder best"]
    assert len({variant.worker for variant in gpu.variants}) == 3


def test_clients_are_there() -> None:
    """Every client has its file."""
    for file, _ in CLIENTS.values():
        assert (HERE / "clients" / file).is_file()


def test_a_peer_without_environment_is_not_there(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Half an installation is none: `done` comes last."""
    python = tmp_path / "openvino" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert python_of("openvino", tmp_path) is None
    (tmp_path / "openvino" / "done").touch()
    assert python_of("openvino", tmp_path) == python
    assert python_of("claimscore", tmp_path) is not None


def test_one_thread_has_one_core() -> None:
    """As many cores as threads."""
    assert len(cores(1)) == 1


def test_padding_is_of_what_the_model_was_given() -> None:
    """A hundredth is allowed; less than is needed means that it was not seen."""
    assert padding_line(256, 1000, 991).met is True
    assert padding_line(256, 1000, 989).met is False
    assert padding_line(256, 1000, 1000).own == "0.00%"
    unseen = padding_line(256, 0, 990)
    assert unseen.met is None
    assert "cannot be seen" in unseen.own


def test_a_pair_twice_in_a_window_is_needed_once() -> None:
    """But again in the next window."""
    a, b = ("a", "a"), ("b", "b")
    lengths = {a: 5, b: 7}
    assert tokens_needed([a, a, b], lengths, 3) == 12
    assert tokens_needed([a, a, b, a], lengths, 2) == 5 + 12


def test_peers_padding_in_both_orders() -> None:
    """All pairs of the same length pad nothing."""
    text = peers_padding([("a", "b")] * 40, [7] * 40)
    assert text.count("0.0%") == 2


def test_overlap_is_judged_by_the_longer_stage() -> None:
    """Median of the rounds' ratios to the longer stage of the same round."""
    rounds = [
        {"encoders": 10.0, "llm": 9.0, "both": 11.0},
        {"encoders": 20.0, "llm": 22.0, "both": 24.2},
        {"encoders": 10.0, "llm": 10.0, "both": 20.0},
    ]
    line = overlap_line(rounds)
    assert line.ratio == "1.10 (1.10 to 2.00)"
    assert line.met is True
    assert overlap_line(rounds[2:]).met is False


def test_noise_makes_no_negative_time() -> None:
    """A start-up that was slower than the whole run is noise."""
    assert beyond(3.0, Took(2.0, 0)) > 0
    assert beyond(3.0, Took(5.0, 0)) == 2.0


def test_overlap_of_unequal_stages_is_not_judged() -> None:
    """A short stage hides behind a long one whatever the program does."""
    line = overlap_line([{"encoders": 5.0, "llm": 10.0, "both": 10.1}])
    assert line.met is None
    assert "not equal" in line.beside
