"""What Prometheus sees: the catalogue of series, and what fills them."""
