"""The web pages; each is also available as JSON."""
