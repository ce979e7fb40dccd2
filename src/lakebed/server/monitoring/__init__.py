"""Monitoring of a service: metrics for Prometheus, and traces and metrics for OpenTelemetry."""
