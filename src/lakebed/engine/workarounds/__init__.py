"""What works around faults of DataFusion 55: a module for each form that it evaluates wrongly.

docs/engine-faults.md lists the faults with their upstream issues. ``tests/tables/test_engine_faults.py`` has a test for
each, which fails once the fault is mended; then what works around it can go.
"""
