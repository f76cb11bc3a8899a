"""Pure functions of traces: acceptance, latency, throughput, validity and their statistics."""
