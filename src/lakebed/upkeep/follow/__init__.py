"""Change data capture: follows a database or a topic, and applies its changes to tables, exactly once."""
