"""Files and texts that Themis writes and reads back: clusters, event logs, snapshots, auctions.

    topology = cluster("testbed64")                                  # cluster_files
    with LogWriter("events.jsonl", header_of(topology, "themis", settings, seed=1)) as log:
        commands = log.handle(arbiter, event)                        # event_log
    assert replay("events.jsonl").same                               # replay

- `codec` and `tags`: values as JSON, and back.
- `event_log`, `agent_log`, `replay`: what arbiter and agents were told and answered, told again.
- `cluster_snapshots`, `forecast_questions`: the state that a forecast begins with, and what it is
  asked.
- `auction_files`, `auction_checks`, `packed_auctions`: auctions as files and as short entries.
- `yaml_documents`, `validation`, `written_values`, `written_settings`, `cluster_files`: files that
  people write.
- `atomic_files`: writing files whole.

The event log is the truth: fed to a fresh arbiter it gives the same commands.
"""
