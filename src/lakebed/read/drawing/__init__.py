"""Drawings of tables and reads, for web pages and notebooks."""
