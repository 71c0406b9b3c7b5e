"""What is known: the survey's paper pool as data, with its statistics, claims and corrections."""
