"""Methods whose learned thing is text, one file each: LangMARL, HERA, MAS-Zero."""
