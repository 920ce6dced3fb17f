"""Replay: new versions of the projections, built from the log beside the live ones.

``targets`` say what is built and from which topics, ``building`` reads the log and applies it, ``switching`` lets a
new version take over. Nothing here publishes an event or asks a model.
"""
