"""Where rollouts run, one file for each way; what a runner is stands in `train/runner.py`."""
