"""Instances and tables: what users hold."""
