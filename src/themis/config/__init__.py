"""The configuration of service, nodes and bridges: keys, files, environment and flags."""
