"""Reads: which files answer a request (:mod:`~lakebed.read.plan`, pure), and reading them."""
