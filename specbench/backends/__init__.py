"""Where requests go: the protocol and one file per kind of server."""
