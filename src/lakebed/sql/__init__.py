"""SQL over tables."""
