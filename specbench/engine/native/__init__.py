"""A compiled forward pass for CPUs; optional: without a compiler torch runs instead."""
