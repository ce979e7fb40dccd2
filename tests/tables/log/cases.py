"""A small log to reason about: files of letters committed to a table's log, on whatever store."""

from lakebed.log.backends.objects import ObjectLog
from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.log import Log
from lakebed.log.log_limits import LIMITS
from lakebed.log.outcomes import Committed
from lakebed.log.segments import SegmentCache
from lakebed.model.state.machine import TABLE
from lakebed.model.state.transactions import CreateTable, ProposeFiles
from lakebed.testing.faults import CountingStorage
from tests.pure.state.cases import SCHEMA, new_file

LOG = "tables/table-00"


def log_on(storage, cache=None, limits=LIMITS):
    """A log object of its own, as if of another process, unless they share a cache."""
    location = CheckpointLocation(storage, LOG, cache=SegmentCache(2**20) if cache is None else cache)
    log = Log(ObjectLog(storage, LOG), location, "table-00", TABLE)
    log.limits = limits
    return log


def created(storage, limits=LIMITS):
    """A log with entry 1."""
    log = log_on(storage, limits=limits)
    assert log.commit(CreateTable("table-00", SCHEMA, {}, ())) == Committed(1)
    return log


def adding(name, request=None):
    """A proposal of one file of four rows."""
    return ProposeFiles((new_file(name, "abyz"),), request)


class Overtaken(CountingStorage):
    """A store whose first create of a log entry stands still while something else happens."""

    def __init__(self, inner, meanwhile):
        super().__init__(inner)
        self.meanwhile = meanwhile

    def create(self, name, data):
        if "/log/" in name and (meanwhile := self.meanwhile):
            self.meanwhile = None
            meanwhile()
        return super().create(name, data)
