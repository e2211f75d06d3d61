"""Ray as an engine: leases are placement groups, pinned to their machines by label."""
