"""What `counterpoint new` writes: a small plug-in of each kind with its test, as real modules that are checked like all others.

Always true: the object is called `plugin_name`, and a test imports it from its own file; the command puts the names in.
"""
