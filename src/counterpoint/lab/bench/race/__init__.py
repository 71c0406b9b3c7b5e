"""Every method that learns networks, side by side: what is run, its rows in a folder, and what they show."""
