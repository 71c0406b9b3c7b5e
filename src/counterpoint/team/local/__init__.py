"""The parts of the local model: what lies on the machine, loading, one forward pass over many agents, decoding.

Always true: nothing here is imported before a local model is asked for, and no part reaches a hub.
"""
