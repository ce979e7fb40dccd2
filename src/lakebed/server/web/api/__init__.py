"""The API for programs, below ``/v1``, and the endpoints for probes and collectors."""
