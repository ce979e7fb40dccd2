"""The service: one process that maintains the tables of an instance, and has what its doors answer from."""
