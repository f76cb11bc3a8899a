"""specbench: benchmark and acceptance-rate profiler for speculative decoding."""

__version__ = "0.1.0"
