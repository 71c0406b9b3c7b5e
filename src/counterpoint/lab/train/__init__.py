"""From credit to updates: losses as pure functions of arrays; engines and presets build on them."""
