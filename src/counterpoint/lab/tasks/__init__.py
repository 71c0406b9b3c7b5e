"""Text tasks: what one is (`task.py`) and those that are shipped."""
