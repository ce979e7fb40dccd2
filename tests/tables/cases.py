"""What tests of whole tables do alike."""

import tempfile
from dataclasses import replace
from pathlib import Path

from lakebed import clock
from lakebed.errors import Error
from lakebed.jobs.executor import decode, encode
from lakebed.model.keys import ALL_KEYS
from lakebed.model.settings import Strategy
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import OpenJob, ProposeOutput
from lakebed.read.rows.plan import plan
from lakebed.upkeep.compaction.plan import plan as plan_compaction
from lakebed.upkeep.rewrite.run import LIMITS, RewriteRequest, prepare, rewrite
from lakebed.upkeep.rewrite.task import RewrittenFile, run_rewrite_task
from lakebed.write.run import FileTarget, write_files


def compact(table):
    """The only partition's files become one: what a compaction commits, without Spark."""
    (merge,) = plan_compaction(table.state(), table.settings_in_force(), Strategy.FULL).merges
    job = clock.new_id()
    table.commit(OpenJob(Job(job, ALL_KEYS, tuple(file.id for file in merge.inputs), "", 60, 0)))
    batches = table.scan()
    files = write_files(
        batches, table.layout(), FileTarget(table.storage, table.id, job), memory_limit_bytes=2**28, cuts=()
    )
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
        FileTarget(table.storage, table.id, job),
        memory_limit_bytes=2**28,
        cuts=state.partitions.boundaries,
    )
    table.commit(ProposeOutput(job, files))


def rewritten(table, *ranges, set=None, where=None, delete_where=None, execute=None, limits=LIMITS):
    """The report of a rewrite whose tasks run in this process."""
    prepared = prepare(table, RewriteRequest(ranges, set or {}, where, delete_where))
    run = execute or (lambda tasks: rewrite_tasks(table, tasks))
    return rewrite(table, replace(prepared, limits=limits), run, cores=1, check=lambda: None)


def rewrite_tasks(table, tasks):
    """What tasks of a rewrite give, as it comes back from Spark."""
    made = []
    for task in tasks:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                made.append(decode(encode(run_rewrite_task(task, table.storage, Path(scratch))), RewrittenFile))
            except Error as error:
                made.append(error)
    return made
