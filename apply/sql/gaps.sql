-- An operator accepts a loss by name; the partition goes on behind it.

-- name: halted
SELECT generation, next_offset_to_apply, halted FROM gapless.position
WHERE pipeline = 'live' AND partition = %(partition)s FOR UPDATE

-- name: pages
-- The keys of pages that the ledger knows in a stretch of the log.
SELECT "offset", i.text, l.plan, l.scope, l.pass, l.page, l.part
FROM gapless.page_ledger l JOIN gapless.partition_id i ON i.id = l.partition_id
WHERE l.partition = %(partition)s AND l.generation = %(generation)s
  AND l."offset" >= %(start)s AND l."offset" < %(end)s

-- name: new_generation
INSERT INTO gapless.log_generation (partition, generation, topic_id, first_offset, accepted_by)
VALUES (%(partition)s, %(generation)s, %(topic_id)s, %(next)s, %(by)s)

-- name: go_on
-- The claim rises too: whoever reads the partition now has another idea of where it stands.
UPDATE gapless.position SET generation = %(generation)s, next_offset_to_apply = %(next)s,
  last_offset = NULL, last_key = NULL, leader_epoch = NULL, halted = NULL, claim = claim + 1
WHERE pipeline = 'live' AND partition = %(partition)s

-- name: accept
UPDATE gapless.gap SET accepted_by = %(by)s, accepted_at = %(now)s
WHERE partition = %(partition)s AND cause = %(cause)s AND accepted_at IS NULL AND partition_id IS NULL

-- name: drop_snapshots
-- Listings that began in a log that is gone will never be complete.
UPDATE gapless.snapshot s SET state = 'dropped', note = 'the log was cut'
FROM gapless.partition_id i
WHERE i.id = s.partition_id AND i.partition = %(partition)s AND s.generation < %(generation)s
  AND s.state IN ('open', 'held', 'released')

-- name: drop_marks
-- Nor will the pages come that these wait for.
UPDATE gapless.mark SET state = 'dropped'
WHERE partition = %(partition)s AND generation < %(generation)s AND state = 'pending'

-- name: forget_replays
-- A replay of what was cut has to begin again.
DELETE FROM gapless.position WHERE pipeline <> 'live' AND partition = %(partition)s
