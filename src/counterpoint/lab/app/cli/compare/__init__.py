"""What the laboratory adds to `counterpoint compare`: training runs, presets, methods, and pictures of runs."""
