"""The pure core of an agent session: messages from the service in, messages to the service out.

`session.AgentSession` is the state machine. It holds the core agent and components that own their
state: `trials.TrialTable` (parameters, progress, failures), `runs.RunTracker` (runs asked for, and
how they train), `leases.HeldLeases`, `homes.HomeMachines` (jobs whose checkpoints only one machine
sees) and `launcher.JobLauncher`. `outcomes` judges how a run ended; `recovery` makes an agent that
begins in the middle of its app.
"""
