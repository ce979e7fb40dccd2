"""Records of work on tables: which job ran where, its progress, and its outcome."""
