"""The pure core of an agent session: messages in, messages out."""
