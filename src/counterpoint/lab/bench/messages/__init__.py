"""Labelled messages: what each message of a team was worth, by coupled forks; and who can tell without forks."""
