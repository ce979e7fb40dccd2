"""DataFusion as Lakebed uses it: contexts, predicates, computed columns, bounds on SQL text."""
