from __future__ import annotations

import pytest

from visiontrain.errors import TrainingStopped
from visiontrain.training.ledger import APPLIED, EARLIER, Ledger


def test_every_position_has_one_fate_and_equal_neighbours_are_one_stretch():
    ledger = Ledger()
    for start in range(0, 12, 4):
        ledger.close(range(start, start + 4), APPLIED)
    ledger.close(range(12, 14), "skipped: non-finite loss")
    ledger.close(range(14, 15), APPLIED)
    assert ledger.stretches == [(0, 12, APPLIED), (12, 14, "skipped: non-finite loss"), (14, 15, APPLIED)]
    assert ledger.position == 15
    ledger.close_epoch(15)
    assert ledger.position == 0 and ledger.closed == {APPLIED: 13, "skipped: non-finite loss": 2}


@pytest.mark.parametrize(
    ("positions", "said"),
    [
        ([3, 4], "position 3 was dealt twice"),
        ([4, 4], "position 4 was dealt twice"),
        ([5], "position 4 was passed over"),
    ],
)
def test_a_position_that_comes_twice_or_not_at_all_is_an_error(positions, said):
    ledger = Ledger()
    ledger.close(range(4), APPLIED)
    with pytest.raises(TrainingStopped, match=said):
        ledger.close(positions, APPLIED)
    assert ledger.position == 4


def test_an_epoch_that_is_not_complete_does_not_close():
    ledger = Ledger()
    ledger.close(range(4), APPLIED)
    with pytest.raises(TrainingStopped, match="positions 4 to 6"):
        ledger.close_epoch(7)


def test_it_goes_through_a_checkpoint():
    ledger = Ledger()
    ledger.close(range(5), APPLIED)
    ledger.close_epoch(5)
    ledger.close(range(2), APPLIED)
    again = Ledger.of(ledger.content())
    assert again == ledger
    again.close(range(2, 5), APPLIED)
    again.close_epoch(5)
    assert again.closed == {APPLIED: 10}


def test_of_a_checkpoint_that_had_none_it_knows_how_far_it_came():
    ledger = Ledger.of_position(3, images_seen=13)
    assert ledger.position == 3 and ledger.closed == {EARLIER: 10}
    assert Ledger.of_position(0, 0) == Ledger()
