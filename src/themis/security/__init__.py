"""Callers of the service: their identities, their permissions, and the audit log.

tokens, token_store, token_files  credentials: made and checked, in the store, in files
browser_sessions                  login links and cookies, made with a token
permissions                       the table of verbs, roles and owners
audit, redaction                  rows of what was done, and texts without secrets
rate_limits                       requests and streams of one caller
tls, certificate_authority, bind_address  certificates, and where the service may listen
"""
