"""Plug-ins of the laboratory's kinds that `counterpoint new` writes, each with its test."""
