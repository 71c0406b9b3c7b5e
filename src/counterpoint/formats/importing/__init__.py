"""What all importers build on.

`files.py` reads the files of a source, `values.py` and `usage.py` its values, tokens and prices, `chat.py` the messages of a
model call and conversations in which everybody hears everybody. `lane.py` puts events down, `report.py` says what was broken,
unknown, inferred or mended.
"""
