"""What every table has to do, whatever was done to it before."""

import lakebed
from lakebed import clock
from lakebed.collection.run import collect_garbage
from lakebed.files import table_prefix
from lakebed.log.snapshot import SnapshotPlace, Snapshots
from lakebed.state.machine import TABLE


def assert_whole(url, name, table=None):
    """It is checkpointed, tagged, collected, listed and verified, and a fresh instance opens its checkpoint alone."""
    table = lakebed.open(str(url)).table(name) if table is None else table
    tag = f"t-{clock.new_id()}"
    assert table.tag(tag) == table.number - 1
    history = table.history()
    assert history.column("number").to_pylist()[0] == table.number
    assert all(type(key) is str for key in history.column("request_key").to_pylist() if key is not None)
    table.untag(tag)
    collect_garbage(table)
    table.log.snapshots.write(table.log.head)
    fresh = lakebed.open(str(url)).table(name)
    assert fresh.state() == table.state()
    opened = Snapshots(SnapshotPlace(fresh.storage, table_prefix(fresh.id)), fresh.id, TABLE).read_whole()
    assert opened is not None
    assert opened.number <= fresh.number
    assert fresh.count().rows == fresh.scan().read_all().num_rows
    assert fresh.verify().sound
