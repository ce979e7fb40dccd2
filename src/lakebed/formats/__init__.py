"""Files of other programs: their formats, their text, their types."""
