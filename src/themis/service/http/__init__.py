"""The HTTP API: server, authentication, routes and their JSON."""
