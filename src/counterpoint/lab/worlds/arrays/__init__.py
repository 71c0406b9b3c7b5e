"""How a world of a package becomes one of arrays: the plug-in that `lab/worlds/world.py` asks for `PACKAGE:NAME`."""
