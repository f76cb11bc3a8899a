"""specbench: benchmark and acceptance profiler for speculative decoding."""

__version__ = "0.1.0"
