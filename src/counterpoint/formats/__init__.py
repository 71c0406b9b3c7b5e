"""Everything that reads or writes traces in another form: one file or package per format, named after it.

`format.py` says what a format is and which one a file is in, `importer.py` what an importer of a foreign log is, and
`draft.py` makes a sound trace of what an importer found. What importers share is in `importing/`; what those of spans share,
in `spans/`; `masking/` takes secrets out of what leaves. Codex logs are read in `codex/`, and so on: a package opens with
what each of its modules does.
"""
