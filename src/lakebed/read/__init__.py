"""Reads: planning the files of a request (:mod:`~lakebed.read.rows.plan`, pure), and reading them."""
