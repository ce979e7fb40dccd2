"""The Python client of a service: instances and tables with the methods of the library's own, over HTTP."""
