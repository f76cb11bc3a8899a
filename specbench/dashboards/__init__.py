"""Grafana boards built from the catalogue of series: build, check, push, annotate."""
