"""What is written down and read back: clusters as YAML, event logs as JSON lines, and replays.

    topology = cluster("testbed64")                                  # records.clusters
    with LogWriter("events.jsonl", header_of(topology, "themis", settings, seed=1)) as log:
        commands = log.handle(arbiter, event)                        # records.log
    assert replay("events.jsonl").same                               # records.replay

The event log is the truth: fed to a fresh arbiter it gives the same commands.
"""
