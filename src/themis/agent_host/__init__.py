"""The process that runs the agents of one owner: tuners, bids and placements of submitted apps."""
