"""The pure core of a node: what runs on one machine, and until when."""
