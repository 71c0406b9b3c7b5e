"""The parts of `record()`: lanes, acts, wrapping, texts and the session beneath."""
