"""Contracts: tests that authors of policies, solvers, engines and stores inherit."""
