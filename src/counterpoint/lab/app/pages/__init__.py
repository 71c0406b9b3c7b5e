"""The laboratory's pages of the viewer: runs, races, benches."""
