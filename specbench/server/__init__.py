"""The engine as a service over HTTP."""
