"""Values: keys, schemas, types, files and what their bytes say. No I/O."""
