"""Comparisons of training runs and methods: sub-commands of `counterpoint compare`."""
