"""Published methods and ours, one file of data each: `NAME = Preset(...)`; the file's name is the preset's."""
