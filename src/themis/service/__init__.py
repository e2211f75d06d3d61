"""The process `themis serve`: steward, store, solver, gRPC and HTTP."""
