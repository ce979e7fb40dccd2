"""Lookups while keys arrive in random order: Lakebed and what people would pick instead, on the same rows.

    python -m benchmarks.lookup_under_ingest [--peers lakebed delta-rs …] [--only lookups …] [--commits 100]

See :mod:`benchmarks.lookup_under_ingest.__main__` for the options and docs/performance/peers.md for what came out.

* ``rows``: the rows; ``peers``: one module a system; ``measures``: what is asked of each, the same for all.
* ``environments``: an environment for each peer, from the versions pinned in ``requirements``.
* ``worker``: a measure in a process of the peer's environment; ``cold``: a new process's first lookup.
* ``report``: the table and the page; ``plot``: the picture.
"""
