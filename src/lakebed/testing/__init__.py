"""Tools for tests of Lakebed, and of software that uses it.

* :mod:`lakebed.testing.faults`: a store that fails on purpose, and one that counts.
* :mod:`lakebed.testing.conformance`: the contract of stores, as a pytest suite (needs pytest).
* :mod:`lakebed.testing.logs` and :mod:`lakebed.testing.log_processes`: the contract of log backends, likewise.
* :mod:`lakebed.testing.executors`: the contract of executors, likewise.
* :mod:`lakebed.testing.table_handles`: the contract of handles of tables, likewise.
* :mod:`lakebed.testing.merge_functions`: whether a function may merge rows.

Import what you need from those modules; this one is empty so that it costs nothing.
"""
