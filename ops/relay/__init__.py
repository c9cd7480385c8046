"""Publishes the outbox to Kafka and to receivers: in order per key, at least once, always with the same id.

`schedule` and `answers` decide (pure), `outbox` reads and marks rows, `kafka` and `post` are the two
ways out, a lane is the loop of one of them, `pruning` removes what was sent long ago. Nothing here makes an event or an id.
"""
