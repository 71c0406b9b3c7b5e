"""The parts of the sandbox: the launcher in the child, Landlock, seccomp, and an agent's folder."""
