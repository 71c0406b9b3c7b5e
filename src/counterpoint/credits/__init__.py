"""Who earned it: one file per credit mechanism; array mathematics first, the adapter to traces last. Pure."""
