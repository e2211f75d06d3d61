"""What the HTTP API answers, by subject; `themis.service.http.app` puts it together."""
