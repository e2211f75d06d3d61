"""The pure core of a node: what runs on one machine, and until when.

`node_core` is the state machine, with its `events` and `commands`; `run_states` has the leases and
runs that it knows, `report_schedule` says when it reports, and `report_budget` shares a report
among the points of its runs.
"""
