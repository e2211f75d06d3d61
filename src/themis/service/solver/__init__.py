"""The process that solves auctions for the service, and the client that talks to it."""
