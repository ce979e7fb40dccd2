"""Lookups while keys arrive in random order: Lakebed and its alternatives, on the same rows.

    python -m benchmarks.lookup_under_ingest [--peers lakebed delta-rs …] [--only lookups …] [--commits 100]

See :mod:`benchmarks.lookup_under_ingest.__main__` for the options and docs/performance/peers.md for the results.

* ``rows``: the rows; ``peers``: one module per system; ``measures``: the measures, the same for all.
* ``environments``: an environment for each peer, from the versions pinned in ``requirements``.
* ``worker``: a measure in a process of the peer's environment; ``cold``: a new process's first lookup.
* ``report``: the table and the page; ``plot``: the plots.
"""
