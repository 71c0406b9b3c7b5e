"""What happened: the survey's E1-E4 measures, roll-ups and reward hacks, each with the events behind it."""
