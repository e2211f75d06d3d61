"""Tokens, permissions, TLS, audit and limits."""
