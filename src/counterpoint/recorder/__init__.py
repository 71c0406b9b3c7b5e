"""Teams that are not ours, recorded as they work (`recording`, which is `counterpoint.record`), and orders to running teams.

Always true: importing this package imports nothing else, so that a worker which only obeys orders loads no store.
"""
