"""Sending requests: when they are due, and keeping to it."""
