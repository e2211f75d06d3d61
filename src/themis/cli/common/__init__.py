"""What the verbs share: options, output, tables, and calls of the service."""
