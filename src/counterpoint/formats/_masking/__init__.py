"""Secrets in texts: what they look like, and where they are. `counterpoint.formats._mask` takes them out of a trace."""
