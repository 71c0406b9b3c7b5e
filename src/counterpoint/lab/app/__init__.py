"""The laboratory's part of the command line, the page and the Python face."""
