"""Spans of any tracer as traces.

`span.py` is a span in our form, and `trees.py` makes traces of them, by how they nest (`nests.py`). `raw_records.py` reads
OpenTelemetry's records in whichever encoding they come, and `genai.py` what they mean under the GenAI conventions.
`openinference.py` reads OpenInference's attributes, `langgraph.py` what LangSmith, Langfuse and others write as metadata.
"""
