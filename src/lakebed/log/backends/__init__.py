"""Where entries are kept: objects of a store, rows of PostgreSQL, or items of DynamoDB, all as ``backend`` promises."""
