"""Principals, their permissions, and the parts of tables that they may see."""
