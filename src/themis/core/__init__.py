"""The pure core: what arbiter, agents, policies and tuners decide. No IO, no clock, no threads."""
