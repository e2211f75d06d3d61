"""What engines of clusters share that another scheduler rules."""
