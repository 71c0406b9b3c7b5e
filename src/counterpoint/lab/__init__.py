"""The laboratory: what learns, and what judges learners.

Always true: the core (`counterpoint`) imports nothing from here. What the laboratory adds (commands, kinds of plug-in, pages,
answers to the core's questions, names of `import counterpoint`) hangs in by the entry points of pyproject.toml, as a stranger's
package would.
"""
