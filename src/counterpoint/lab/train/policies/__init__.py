"""The learned orchestrator: features of the prefix, the network, and how it acts."""
