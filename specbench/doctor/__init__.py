"""Which wire between target and draft is wrong: checks, probes, parity and their findings."""
