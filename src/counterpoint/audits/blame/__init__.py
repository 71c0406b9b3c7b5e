"""Who broke it: the steps of a failed run, ranked by how likely each decided the failure."""
