"""Functions of the laboratory behind `import counterpoint`."""
