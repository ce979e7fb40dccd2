"""A table of very many rows on one small machine, upserted, read and maintained while everything is killed.

:mod:`benchmarks.billion.__main__` says what it does, and how it is run.
"""
