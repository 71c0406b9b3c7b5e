"""AutoGen's logs, in parts."""
