"""What a service publishes of itself: metrics for Prometheus, traces and metrics for OpenTelemetry."""
