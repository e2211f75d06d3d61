"""Slurm: machines, allocations and steps, by its own commands; no root, no library of its own."""
