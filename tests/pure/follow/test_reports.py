"""What a follower says when it ends."""

from lakebed.upkeep.follow.run import FollowReport


def test_a_report_names_the_position_if_there_is_one() -> None:
    report = FollowReport("shop", ("orders",), 3, 0, 0, {"LSN": "0/16B"})
    assert report.summary == "3 changes committed to 1 table, up to LSN 0/16B"
    ended_early = FollowReport("shop", (), 0, 0, 0, {})
    assert ended_early.summary == "0 changes committed to 0 tables"
