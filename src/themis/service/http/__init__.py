"""The HTTP API of the service, for people, browsers and monitoring.

routes/table        every route in one row: method, path, verb, handler, body, query
app, context        the steps of each request, and what all handlers share
routing, query      what a route and a request are; query parameters
bodies, openapi     bodies of requests, and the API described for programs
serializers         the service's state as JSON;  responses  answers and errors as bytes
authentication      the caller of a request
server              uvicorn;  connection_limits, request_ids  around each request
"""
