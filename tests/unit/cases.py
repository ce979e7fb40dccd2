"""What tests of whole tables do alike."""

from lakebed import clock
from lakebed.ingest.run import write_files
from lakebed.maintenance.compaction.plan import plan as plan_compaction
from lakebed.model.keys import ALL_KEYS
from lakebed.read.plan import plan
from lakebed.settings import Strategy
from lakebed.state.transactions import Job, OpenJob, ProposeOutput


def compact(table):
    """The only partition's files become one: what a compaction commits, without Spark."""
    (merge,) = plan_compaction(table.state(), table.settings_in_force(), Strategy.FULL).merges
    job = clock.new_id()
    table.commit(OpenJob(Job(job, ALL_KEYS, tuple(file.id for file in merge.inputs), "", 60, 0)))
    batches = table.scan()
    files = write_files(batches, table.layout(), (table.storage, table.id, job), memory_limit_bytes=2**28, cuts=())
    table.commit(ProposeOutput(job, files))
    return job


def compact_partition(table, position):
    """All files of a partition become one run; ``position`` counts partitions, round and round."""
    state = table.state()
    position %= len(state.partitions)
    inputs = state.files_of(state.partitions.ids[position])
    if not inputs:
        return
    keys, job = state.partitions.range_at(position), clock.new_id()
    table.commit(OpenJob(Job(job, keys, tuple(file.id for file in inputs), "", 60, 0)))
    planned = plan(state, [keys])
    rows = table.reader.scan(planned, state.created.names, None)
    files = write_files(
        rows,
        table.layout(),
        (table.storage, table.id, job),
        memory_limit_bytes=2**28,
        cuts=state.partitions.boundaries,
    )
    table.commit(ProposeOutput(job, files))
