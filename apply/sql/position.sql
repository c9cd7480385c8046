-- The applied offset and the claim on it. Parameters are named; arrays run in parallel.

-- name: claim
-- Take a partition over, or begin it: the claim rises, so whatever the owner before still holds
-- cannot commit. A new row begins at offset 0; what the log says about that is checked afterwards.
-- An owner that has a backend there never gave the row back; if it is where that owner found it, too,
-- what it had in hand may have ended it.
INSERT INTO gapless.position AS p
  (pipeline, partition, next_offset_to_apply, claim, owner, backend_pid, backend_start, mapping_versions,
  claimed_at_offset)
VALUES (%(pipeline)s, %(partition)s, 0, 1, %(owner)s, pg_backend_pid(),
  (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()), %(mapping_versions)s, 0)
ON CONFLICT (pipeline, partition) DO UPDATE SET
  claim = p.claim + 1, owner = EXCLUDED.owner, backend_pid = EXCLUDED.backend_pid,
  backend_start = EXCLUDED.backend_start, mapping_versions = EXCLUDED.mapping_versions,
  unclean = CASE
    WHEN p.backend_pid IS NULL OR (p.backend_pid, p.backend_start) = (EXCLUDED.backend_pid, EXCLUDED.backend_start)
      THEN 0
    WHEN p.claimed_at_offset = p.next_offset_to_apply THEN p.unclean + 1
    ELSE 1 END,
  claimed_at_offset = p.next_offset_to_apply
RETURNING p.partition, p.generation, p.next_offset_to_apply, p.last_offset, p.last_key,
  p.leader_epoch, p.claim, p.halted, p.end_offset, p.checkpointed_at, p.unclean, p.trial

-- name: reclaim
-- After a lost connection: go on only where nobody else has claimed meanwhile. Waits for what the
-- lost connection may still be committing, so the offset read here is decided.
UPDATE gapless.position AS p SET
  claim = p.claim + 1, owner = %(owner)s, backend_pid = pg_backend_pid(),
  backend_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
WHERE pipeline = %(pipeline)s AND partition = %(partition)s AND claim = %(claim)s
RETURNING p.partition, p.generation, p.next_offset_to_apply, p.last_offset, p.last_key,
  p.leader_epoch, p.claim, p.halted, p.end_offset, p.checkpointed_at, p.unclean, p.trial

-- name: release
-- A graceful end: no backend is left for a taker-over to terminate.
UPDATE gapless.position SET owner = NULL, backend_pid = NULL, backend_start = NULL
WHERE pipeline = %(pipeline)s AND (partition, claim) IN
  (SELECT * FROM unnest(%(partitions)s::int[], %(claims)s::bigint[]))

-- name: holder
-- Who stands on a position row, read without waiting for its lock.
SELECT owner, backend_pid, backend_start FROM gapless.position
WHERE pipeline = %(pipeline)s AND partition = %(partition)s AND backend_pid <> pg_backend_pid()

-- name: terminate
-- End a backend that keeps a position locked: a client stopped inside COPY holds it for ever, and no
-- time-out of Postgres ends that. The start time guards against a pid that was used again.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %(pid)s AND backend_start = %(start)s AND pid <> pg_backend_pid()

-- name: compare_and_set
-- The one statement that fences a batch: it moves only rows that are claimed by us and stand where
-- the batch begins. Rows are locked in order, so two workers never wait for each other in a circle.
WITH batch AS (
  SELECT * FROM unnest(%(partitions)s::int[], %(claims)s::bigint[], %(generations)s::int2[],
    %(starts)s::bigint[], %(ends)s::bigint[], %(last_offsets)s::bigint[], %(last_keys)s::text[],
    %(leader_epochs)s::int[])
  AS b (partition, claim, generation, start_at, end_at, last_offset, last_key, leader_epoch)
), mine AS (
  SELECT b.* FROM gapless.position p JOIN batch b USING (partition)
  WHERE p.pipeline = %(pipeline)s AND p.claim = b.claim AND p.next_offset_to_apply = b.start_at
    AND p.generation = b.generation AND p.halted IS NULL
  ORDER BY p.partition FOR UPDATE OF p
)
UPDATE gapless.position p SET next_offset_to_apply = m.end_at, checkpointed_at = clock_timestamp(),
  last_offset = coalesce(m.last_offset, p.last_offset), last_key = coalesce(m.last_key, p.last_key),
  leader_epoch = coalesce(m.leader_epoch, p.leader_epoch)
FROM mine m WHERE p.pipeline = %(pipeline)s AND p.partition = m.partition
RETURNING p.partition

-- name: note_trial
-- What is tried next, durable before it is: should it end the process, whoever takes over knows.
UPDATE gapless.position SET trial = %(trial)s
WHERE pipeline = %(pipeline)s AND partition = %(partition)s AND claim = %(claim)s
RETURNING partition

-- name: halt
-- Stop a partition until an operator accepts what was lost; only its owner may say so.
UPDATE gapless.position SET halted = %(halted)s
WHERE pipeline = %(pipeline)s AND partition = %(partition)s AND claim = %(claim)s
RETURNING generation

-- name: halted
-- Which of these partitions an operator has freed.
SELECT partition FROM gapless.position
WHERE pipeline = %(pipeline)s AND partition = ANY(%(partitions)s) AND halted IS NULL

-- name: start_at
-- Where a partition without a past begins, once the log was asked; the claim guards it.
UPDATE gapless.position SET next_offset_to_apply = %(next)s, generation = %(generation)s
WHERE pipeline = %(pipeline)s AND partition = %(partition)s AND claim = %(claim)s
RETURNING partition

-- name: generations
-- The newest generation of each partition: which topic it was, and where it began.
SELECT DISTINCT ON (partition) partition, generation, topic_id, first_offset
FROM gapless.log_generation ORDER BY partition, generation DESC

-- name: first_generation
-- The topic as it was found at the very first start.
INSERT INTO gapless.log_generation (partition, generation, topic_id, first_offset)
VALUES (%(partition)s, 0, %(topic_id)s, 0) ON CONFLICT DO NOTHING

-- name: gap
-- Something is lost, or may be. The same finding is one row, however often it is found.
INSERT INTO gapless.gap (partition, generation, "offset", partition_id, from_text, to_text, cause)
VALUES (%(partition)s, %(generation)s, %(offset)s, %(partition_id)s, %(from_text)s, %(to_text)s, %(cause)s)
ON CONFLICT (partition, generation, "offset", cause) DO NOTHING
