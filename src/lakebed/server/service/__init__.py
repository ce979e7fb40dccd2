"""The service: one process that maintains the tables of an instance and answers requests."""
