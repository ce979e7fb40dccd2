"""Random tables of random types, against a plain model, through every way to read."""
