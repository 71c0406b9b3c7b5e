"""Tasks in real text: generated from a seed, with tools to work on them and a checker that knows the truth."""
