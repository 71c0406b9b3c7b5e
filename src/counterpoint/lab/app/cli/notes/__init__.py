"""What the laboratory adds to `counterpoint notes`: verdicts of a model."""
