"""The wire: topics, events, queries and their codec. Needs only the standard library and pydantic."""
