"""OpenTelemetry's bodies and records."""
