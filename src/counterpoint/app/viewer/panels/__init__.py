"""The panels of the trace page, a file each; see `viewer/panel.py`."""
