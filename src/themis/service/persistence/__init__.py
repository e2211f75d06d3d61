"""What the service keeps: commits, recovery, event log, replay, and the store."""
