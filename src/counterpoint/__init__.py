"""Counterpoint: a team's run as one orchestration trace."""
