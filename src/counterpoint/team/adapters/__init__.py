"""Recorders for other people's frameworks, one file each; a framework is imported only with its file."""
