"""Files of other programs: formats, text and types."""
