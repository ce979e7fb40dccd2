"""Queries: which files answer a range of keys (:mod:`~lakebed.query.plan`, pure) and reading them (``run``)."""
