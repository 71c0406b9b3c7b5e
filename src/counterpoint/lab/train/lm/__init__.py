"""Language models that learn: `objective` is what is minimised, `adapter` what may change, `learner` one update."""
