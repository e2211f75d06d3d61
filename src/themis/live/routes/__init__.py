"""What the HTTP API answers, by subject; `themis.live.api` puts it together."""
