"""What `themis demo` trains: small real models on generated data, at a pretended pace."""
