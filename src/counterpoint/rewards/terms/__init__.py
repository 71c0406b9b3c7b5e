"""The rewards, one file each: R1 to R8 of the survey."""
