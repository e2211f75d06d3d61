"""The process that runs the agents of one owner's submitted apps: tuners, bids and placements.

`host_supervisor` is the service's side: it starts a host for each owner that needs one. `process`
is the host as a process, and `host` runs an agent for each app: a `session` (pure) whose messages a
`session_client` exchanges with the service. `own_tuner` runs an agent in a user's program instead.
"""
