"""Reads: planning the files of a request (:mod:`~lakebed.read.plan`, pure), and reading them."""
