"""What `counterpoint new` writes: a small plug-in of each kind and, below the line, its test; checked like all other modules.

A panel has, instead of a test, the file of the page that shows it.

Always true: the object is called `plugin_name`. The command cuts a file at the line that names the test, makes an import of the
test's comment `from here import`, and puts the names in.
"""
