"""What became of each agent's work: files and lines that survive, commands and tests, returns that were used, and the cost."""
