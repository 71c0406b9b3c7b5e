"""What the commands compute, as functions: `cpt.credit`, `cpt.audit` and so on; a command of `app/cli` prints what they give."""
