"""Copying agent topics, event by event, to another prefix, cluster or number of partitions.

What must hold afterwards is that a rebuild from the copy remembers what a rebuild from the original does, without
asking a model:

- Every good message is copied in its partition's order, tombstones and superseded copies too: so the last copies, and
  the order of each agent, are those of the original. What was a dead letter is left out.
- What an event says in offsets of the records (the ``at`` of a mark, what a derivation was made of, what a summary
  covers, how far a watermark goes) becomes what means the same messages in the copy: see :mod:`translating`.
- An entry of the erasure ledger without an agent lies in every partition. It is published once to each new one, after
  all that any old partition had before it, and before all that came after it: see :mod:`ordering`.
- The log time of a message stays: the copy's topic takes it from the copier until the copy is complete. Until then
  that topic is one that no process of ours runs on.

A copy names its original in the header :data:`~engramlog.engine.client.copying.origin.ORIGIN`. So a copy that was
interrupted goes on where it ended, and so does one whose original has grown since; what somebody else has written to
the copy is noticed. The originals come from a topic, or from an archive of one.
"""
