"""The API for programs, below ``/v1``, and what probes and collectors ask for."""
