"""The interface of a service for ADBC, JDBC and ODBC drivers: Flight SQL, on the Flight server of PyArrow."""
