"""How a world of a package becomes a text task: the plug-in that `lab/tasks/task.py` asks for `PACKAGE:NAME`."""
