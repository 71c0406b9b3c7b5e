"""A language model of ours, on a CPU or a GPU: `network` computes, `engine` serves many calls at once, `sampling` draws, `chat`
knows its tokens, `weights` and `conversion` what lies on the machine.

Always true: nothing here reaches a hub."""
