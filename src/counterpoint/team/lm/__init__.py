"""A language model of ours, on a CPU or a GPU: `network` computes, `engine` serves many calls at once, `sampling` draws."""
