"""What the program shows: blocks of text for people, plain documents for programs."""
