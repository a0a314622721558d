"""Shows memory to the program: now, over a block of code, or from recordings."""
