"""The durable side of the service: commits, recovery, event log, replay, and the store."""
