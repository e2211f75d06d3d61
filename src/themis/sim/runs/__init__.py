"""Simulated runs as files: folders, caches, archives, and the worker pool that makes them."""
