"""The pure messages between service, nodes and agents."""
