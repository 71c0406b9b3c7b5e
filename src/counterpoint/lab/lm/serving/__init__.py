"""An endpoint that speaks OpenAI's protocol with our engine, or passes it on, and whose calls it writes down.

Always true: importing this package imports nothing else.
"""
