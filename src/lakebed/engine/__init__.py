"""The use of DataFusion in Lakebed: contexts, predicates, computed columns, limits of SQL text."""
