"""The pipeline: operations on whole tables, as tasks that an executor runs."""
