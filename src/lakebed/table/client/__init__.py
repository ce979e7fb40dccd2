"""The Python client of a service: instances and tables with the same methods as the library's, over HTTP."""
