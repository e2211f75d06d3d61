"""Whether the chunks of chosen rows fit into the machines, and where they go."""
