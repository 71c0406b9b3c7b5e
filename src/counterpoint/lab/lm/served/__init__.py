"""Engines of others, which answer over HTTP: vLLM and SGLang."""
