"""Requirements of every table, whatever was done to it before."""

import lakebed
from lakebed import clock
from lakebed.log.checkpoint import CheckpointLocation, Checkpoints
from lakebed.model.files import table_prefix
from lakebed.model.state.machine import TABLE
from lakebed.upkeep.retention.run import collect_garbage


def assert_whole(url, name, table=None):
    """Assert that the table can be checkpointed, tagged, collected, listed and verified, and opened from its checkpoint
    alone.
    """
    table = lakebed.open(str(url)).table(name) if table is None else table
    tag = f"t-{clock.new_id()}"
    assert table.tag(tag) == table.version - 1
    history = table.history()
    assert history.column("version").to_pylist()[0] == table.version
    assert all(type(key) is str for key in history.column("request_key").to_pylist() if key is not None)
    table.untag(tag)
    collect_garbage(table)
    table.log.checkpoints.write(table.log.head)
    fresh = lakebed.open(str(url)).table(name)
    assert fresh.state() == table.state()
    opened = Checkpoints(CheckpointLocation(fresh.storage, table_prefix(fresh.id)), fresh.id, TABLE).read_whole()
    assert opened is not None
    assert opened.version <= fresh.version
    assert fresh.count().rows == fresh.scan().read_all().num_rows
    assert fresh.verify().sound
