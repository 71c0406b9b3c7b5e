"""What every command shares, of any package: options, output, progress, which traces are meant."""
