"""What is asked: worlds that a team acts in, and invented runs of every shape."""
