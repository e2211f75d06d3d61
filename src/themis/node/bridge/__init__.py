"""The process `themis bridge`: nodes for the machines of a cluster that Slurm or Ray rules."""
