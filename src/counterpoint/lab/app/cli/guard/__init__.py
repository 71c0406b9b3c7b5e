"""A sub-command of `counterpoint guard` that learns."""
