"""Records of the work that is done on tables: which job ran where, how far it is, and how it ended."""
