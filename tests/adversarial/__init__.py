"""Attempts to make the code give wrong answers, lose rows, or exceed its limits."""
