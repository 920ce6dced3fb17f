"""The vector store: what is derived from records, as points of a Qdrant, and searches in it."""
