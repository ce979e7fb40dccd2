"""The pages for people; each has a twin in JSON."""
