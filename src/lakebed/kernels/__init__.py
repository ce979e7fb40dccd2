"""The inner loops: rows in, sorted Parquet out. Everything that moves data is made of two kernels.

``sort_runs`` (:mod:`lakebed.kernels.sort`) takes unsorted rows, ``merge_runs`` (:mod:`lakebed.kernels.merge`) takes
sorted files; both end in ``write_run`` (:mod:`lakebed.kernels.write`), the only writer of data files. They stream, and
keep to a memory limit that does not depend on how much comes in. They see local paths only: fetching inputs and
sending outputs is the storage door's work.

Importing a kernel imports DataFusion or Parquet, which takes a good part of a second, so the rest of the package
imports kernels where it calls them.
"""
