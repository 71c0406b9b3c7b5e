"""Agent Lightning's records, in parts."""
