"""The log of one table or of the catalog: numbered entries, the only source of truth.

``committer`` follows the log and commits to it; ``queue`` and ``group_commit`` are its parts, ``outcomes`` its results.
``tail`` has the latest state for readers, ``replay`` older ones. ``entry`` and ``sidecars`` are the stored form,
``backends`` store it. ``checkpoint`` and ``segments`` are derived, so that opening a log need not read all of it.
"""
