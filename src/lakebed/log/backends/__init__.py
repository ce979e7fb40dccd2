"""Log backends: objects of a store, rows of PostgreSQL, or items of DynamoDB, with the guarantees of ``backend``."""
