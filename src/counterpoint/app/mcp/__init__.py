"""What a coding agent may ask of the store, by the Model Context Protocol.

Always true: the tools read one store and nothing else, write nothing, start nothing, and take no path; every answer is short, is
masked as an export is, and marks what it quotes from logs as data.
"""
