"""What rows with equal keys become: the merge modes over sorted streams of rows."""
