"""The service's side of leases and runs: the orders of nodes, and the news for agents.

`steward` is the state machine, with its `events` and `commands`; `outcome` collects what one event
leads to. It holds `components`, each of which owns its state and returns the `rows` to store:

- `node_table`: the nodes, what their reports prove, and when silent ones are given up;
- `run_table`: the runs that agents requested (checked by `agent_requests`), and GPUs given back;
- `agent_sessions`: the session that may speak for each app;
- `metric_relay`: points of runs, on their way from nodes to agents;
- `run_progress`: how far runs are, for the arbiter and for people;
- `shared_storage`: which machines see a job's checkpoints;
- `job_logs` and `trials`: where logs are and how trials went, also after their app has ended.

`run_lifecycle` starts, stops and finishes runs as the arbiter's leases begin and end,
`node_reports` applies the reports of nodes, and `orders` turns leases and runs into the orders of
one node.
"""
