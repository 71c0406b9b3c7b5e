"""Secrets in texts: what they look like, and where they are. `counterpoint.formats.masking.mask` takes them out of a trace."""
