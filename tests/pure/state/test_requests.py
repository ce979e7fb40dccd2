"""Requests: on record from their submission until an add carries them out, or they are given up."""

import pytest
from msgspec import structs

from lakebed.errors import Code, DamagedError
from lakebed.model.keys import EncodedRange
from lakebed.model.state.table_state import IngestRequest, Source
from lakebed.model.state.transactions import (
    AlterSettings,
    FailRequest,
    ProposeFiles,
    ProposeRemoval,
    RaiseWatermark,
    Rejected,
    RejectRequest,
    Repeated,
    SubmitRequests,
    TooOld,
    Watermark,
    apply,
    ingest,
    resolve,
)
from tests.pure.state.cases import key, new_file, step, table, through_an_image

FILES = (Source("s3://inbox/a.parquet", 100, "etag-1"), Source("s3://inbox/b.parquet", 200, "etag-2"))


def submit(*names, base=1):
    return SubmitRequests(tuple(IngestRequest.new(name, FILES, base) for name in names), 0)


def refused(state, proposal):
    resolved = resolve(proposal, state)
    assert isinstance(resolved, Rejected), resolved
    return resolved.reason


def test_a_request_is_open_until_an_add_carries_it_out():
    """In the same entry as its rows; its id is then a request key, and a repeat adds nothing."""
    state = step(table(), submit("r1", "r2"))
    assert state.open_requests["r1"] == IngestRequest("r1", FILES, 1, 2, 0, 0, "")
    assert through_an_image(state) == state
    state = step(state, ProposeFiles((new_file("f1", "ab"),), None, 2, ("r1",)))
    assert (set(state.open_requests), state.answered("r1")) == ({"r2"}, 3)
    assert resolve(submit("r1"), state) == Repeated(3)
    assert resolve(ProposeFiles((new_file("f2", "ab"),), "r1", 2), state) == Repeated(3)


def test_an_add_that_carries_out_what_is_not_open_is_refused():
    """Two workers took up the same request: the rows of the second are not added."""
    state = step(step(table(), submit("r1")), ProposeFiles((new_file("f1", "ab"),), None, 2, ("r1",)))
    again = new_file("f2", "ab")
    assert "carried out at 3" in refused(state, ProposeFiles((again,), None, 3, ("r1",)))
    assert refused(state, ProposeFiles((again,), None, 3, ("r9",))) == "request r9 is not open"
    state = step(state, submit("r2"))
    assert "twice" in refused(state, ProposeFiles((again,), None, 3, ("r2", "r2")))
    assert "key of the add" in refused(state, ProposeFiles((again,), "r2", 3, ("r2",)))


def test_what_is_open_is_not_submitted_again():
    """The rest of a submission is; one that names a request twice, or no file, means nothing."""
    state = step(table(), submit("r1"))
    assert resolve(submit("r1"), state) == Repeated(2)
    assert [r.id for r in resolve(submit("r1", "r2"), state).requests] == ["r2"]
    assert "twice" in refused(state, submit("r3", "r3"))
    assert "no file" in refused(state, SubmitRequests((IngestRequest.new("r3", (), 0),), 0))


def test_a_request_fails_and_is_tried_again_or_given_up():
    """Given up it may be submitted anew."""
    state = step(table(), submit("r1"))
    state = step(step(state, FailRequest("r1", "no such file")), FailRequest("r1", "no such file"))
    assert (state.open_requests["r1"].failures, state.open_requests["r1"].reason) == (2, "no such file")
    assert through_an_image(state) == state
    state = step(state, RejectRequest("r1", "given up"))
    assert not state.open_requests
    assert [(r.id, r.failures, r.rejected, r.reason) for r in state.rejected] == [("r1", 2, 5, "given up")]
    assert through_an_image(state) == state
    for proposal in (FailRequest("r1", "x"), RejectRequest("r1", "x")):
        assert "not open" in refused(state, proposal)
    state = step(state, submit("r1"))
    assert (state.open_requests["r1"].failures, state.rejected) == (0, ())


def test_the_last_that_were_given_up_are_remembered():
    names = [f"r{number:03d}" for number in range(ingest.REJECTED_MAX + 1)]
    state = step(table(), submit(*names))
    for name in names:
        state = step(state, RejectRequest(name, "no"))
    assert [request.id for request in state.rejected] == names[1:]


def test_a_submission_whose_files_were_held_against_an_older_forget_line_is_refused():
    """They may have been carried out and forgotten since."""
    state = step(table(), submit("r1"))
    state = step(state, RaiseWatermark(Watermark.REQUEST_WATERMARK, 2))
    assert "rose from 0 to 2" in refused(state, submit("r2", base=3))
    assert "r2" in step(state, structs.replace(submit("r2", base=3), request_watermark=2)).open_requests


def test_a_fence_stands_as_long_as_a_request_of_before_it_is_open():
    """Its rows in the range are not to come back, however late it is carried out."""
    fenced = ProposeRemoval((EncodedRange(key("b"), key("c")),), fence=True)
    state = step(step(table(), submit("r1")), fenced)
    state = step(state, AlterSettings({"split_rows": 9}))
    state = step(state, RaiseWatermark(Watermark.REQUEST_WATERMARK, 4))
    assert len(state.fences) == 1
    state = step(step(state, RejectRequest("r1", "no")), RaiseWatermark(Watermark.REQUEST_WATERMARK, 5))
    assert state.fences == ()


def test_a_request_that_may_have_been_carried_out_and_forgotten_is_unknown():
    """Below the request watermark there is no record; one that is open rests on its own record."""
    state = step(step(table(), submit("r1", "r2")), ProposeFiles((new_file("f1", "ab"),), None, 2, ("r1",)))
    state = step(state, RaiseWatermark(Watermark.REQUEST_WATERMARK, 3))
    assert resolve(submit("r1"), state) == TooOld(1, 3)
    assert set(state.open_requests) == {"r2"}
    assert resolve(submit("r2"), state) == Repeated(4)


def test_there_is_room_for_so_many_requests():
    state = step(table(), submit(*(f"r{number}" for number in range(ingest.OPEN_REQUESTS_MAX))))
    assert "submit it later" in refused(state, submit("more"))
    assert "more" in step(step(state, RejectRequest("r1", "x")), submit("more")).open_requests


def test_requests_that_do_not_fit_are_damage():
    state = step(table(), submit("r1"))
    for bad in (submit("r1"), submit("r2", "r2"), FailRequest("r9", "x"), RejectRequest("r9", "x")):
        with pytest.raises(DamagedError) as raised:
            apply(state, bad, state.version + 1)
        assert raised.value.code is Code.TRANSACTION_IMPOSSIBLE
