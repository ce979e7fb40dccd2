"""Values: keys, schemas, types, files and metadata about files. No I/O."""
