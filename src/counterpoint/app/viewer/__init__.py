"""The viewer: what the page is told (shapes and the functions that make them), the server, and the page itself."""
