"""Reads rows of tables of other systems: Delta, Iceberg, Hive folders, Sleeper, IceDB (docs/migrate.md)."""
