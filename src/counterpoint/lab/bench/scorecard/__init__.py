"""The benchmark: what a team is measured on, how it is played, and the card that comes of it."""
