"""A driver in a process of its own: ``python -m tests.cluster.driver MASTER``, which reads what to do line by line."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from functools import partial

import lakebed
from lakebed import Pipeline
from lakebed.errors import Error
from lakebed.jobs.bulk_import.map_inputs import native_chunks
from lakebed.jobs.bulk_import.shuffle import Reduced, Shuffle, map_task, reduce_task
from lakebed.jobs.executor import MapReduce
from lakebed.spark.scattered import scattered
from lakebed.spark.spark_exchange import PIECES, map_function


def main() -> None:
    """One JSON document a line in, and one out."""
    master = sys.argv[1]
    session = None
    for line in sys.stdin:
        call = json.loads(line)
        instance = lakebed.open(call["url"], storage_options=call["options"])
        pipeline = Pipeline(instance, session, launcher=master)
        session = pipeline.session
        try:
            answer = {"report": done(pipeline, call["verb"], call["arguments"])}
        except Error as error:
            answer = {"error": error.message}
        print(json.dumps(answer), flush=True)


def done(pipeline: Pipeline, verb: str, arguments: dict) -> str:
    """What a method of the pipeline returned, as text; or the plan of an import."""
    if verb == "explain":
        return explained(pipeline, **arguments)
    return repr(getattr(pipeline, verb)(**arguments))


def explained(pipeline: Pipeline, table: str) -> str:
    """The plan of an import's map tasks, as Spark prints it."""
    target = pipeline.instance.table(table)
    shuffle = Shuffle(pipeline._place, target.id, "job-00001", target.layout(), 1 << 26, (), ())
    maps, reduces = partial(map_task, shuffle=shuffle, chunks=native_chunks), partial(reduce_task, shuffle=shuffle)
    work = MapReduce([[]], maps, 1, reduces, Reduced, 0)
    frame = scattered(pipeline.session, work.values).mapInArrow(map_function(work), PIECES)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        frame.explain(extended=True)
    return said.getvalue()


if __name__ == "__main__":
    main()
