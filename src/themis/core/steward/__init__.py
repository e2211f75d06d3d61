"""The steward: the arbiter's ledger on one side, nodes and agents on the other."""
