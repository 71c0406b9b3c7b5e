"""Pictures of runs: what is drawn (`panels`, no drawing library), how (`draw`), and on which paper (`paper`)."""
