"""The handlers of the HTTP API, one module for each subject, and the table that names them all."""
