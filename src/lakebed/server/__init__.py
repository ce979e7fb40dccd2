"""The service of an instance: its pages and HTTP interface, Flight SQL, security and monitoring."""
