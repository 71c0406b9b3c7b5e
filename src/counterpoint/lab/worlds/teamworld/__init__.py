"""TeamWorld: a dynamic Dec-POMDP in which all five orchestration sub-decisions matter, with known optima. See `world.py`."""
