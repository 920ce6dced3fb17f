"""What a text is about, how much it matters and what it states: by rules, and by an LLM where one is configured."""
