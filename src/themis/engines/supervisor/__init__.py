"""The process that supervises one start of a job, `themis exec`, and how it holds its processes."""
