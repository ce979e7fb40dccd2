"""The HTTP interface of a service: an API for programs and web pages, on Litestar."""
