"""One module per experiment of the paper."""
