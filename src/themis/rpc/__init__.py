"""gRPC between service, nodes and agents: client, stream, methods and the wire form."""
