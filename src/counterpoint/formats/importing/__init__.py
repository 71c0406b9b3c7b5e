"""What all importers build on: sessions of files in, sound traces out."""
