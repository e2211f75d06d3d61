"""Themis shares a GPU cluster fairly among teams who train models."""

__version__ = "0.1.0"
