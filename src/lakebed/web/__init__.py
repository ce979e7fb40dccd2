"""The doors of a service over HTTP: an API for programs and pages for people, on Litestar."""
