"""Sorts inputs of any size into a table: bulk imports, and what is done as one.

``importer`` runs an import in its steps, by the tasks of an executor, whose exchange carries pieces between them.
``map_inputs`` and ``staging`` read sources, ``boundaries`` divides the keys, and ``shuffle`` has the functions of map
and reduce tasks, and what proves that no row was lost between them. ``migration`` and ``view_backfill`` give it rows
of other tables.
"""
