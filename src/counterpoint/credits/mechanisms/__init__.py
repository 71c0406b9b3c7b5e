"""The credit mechanisms, one file each; what they share is in the room above."""
