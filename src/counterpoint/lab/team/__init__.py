"""Who acts, live: models, tools, sandbox, harness, topologies, recorder, fork and steering."""
