"""Archives: a log in a file, and back; and what an agent remembers as a text for people."""
