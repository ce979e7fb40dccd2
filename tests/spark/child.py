"""A process of its own that works on a table, for tests that kill it.

``python -m tests.spark.child LAUNCHER VERB URL …``
"""

from __future__ import annotations

import sys

import lakebed
from lakebed import Pipeline


def main() -> None:
    launcher, verb, url, *rest = sys.argv[1:]
    with Pipeline(lakebed.open(url), launcher=launcher) as pipeline:
        if launcher != "in-process":
            # So that the moments that matter are not lost in the start of a JVM.
            pipeline.session.range(1).count()
        print("ready", flush=True)
        sys.stdin.readline()
        if verb == "import":
            print(pipeline.bulk_import("t", rest[0], job_id=rest[1]))
        elif verb == "export":
            print(pipeline.export("t", rest[0]))
        elif verb == "rewrite":
            print(pipeline.rewrite("t", delete_where=rest[0]))
        else:
            print(pipeline.compact("t", strategy="full"))


if __name__ == "__main__":
    main()
