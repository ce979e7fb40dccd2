"""Random tables of random types, compared with a plain model through every interface that reads."""
