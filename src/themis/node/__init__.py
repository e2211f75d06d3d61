"""The process `themis node`: runs the jobs of one machine under their leases."""
