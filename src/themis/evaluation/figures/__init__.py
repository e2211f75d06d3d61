"""Figures of the evaluation: kinds of charts, and what they show of measured runs."""
