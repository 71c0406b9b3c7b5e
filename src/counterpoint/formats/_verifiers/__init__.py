"""The verifiers library's rows, in parts."""
