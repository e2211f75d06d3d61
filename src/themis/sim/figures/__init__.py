"""Figures of simulated runs."""
