-- Exceptions that are tried again, by the owner of their partition only.

-- name: hold
-- Nothing of ours moves the position here, but the claim must still be ours; the lock keeps it so.
SELECT partition FROM gapless.position
WHERE pipeline = %(pipeline)s AND halted IS NULL
  AND (partition, claim) IN (SELECT * FROM unnest(%(partitions)s::int[], %(claims)s::bigint[]))
ORDER BY partition FOR UPDATE

-- name: due
-- What is due, oldest first; records that have ended a process by themselves. The part's first index
-- follows from the parts before it.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, e.partition_id, i.text,
  v.mapping, e.plan, e.scope, e.source_epoch, e.original_offset, e.raw, e.attempts, e.fetched_at,
  e.as_of, e.run, s.began, l.pass, l.page, l.part, l.parts,
  coalesce((SELECT sum(b.records) FROM (
    SELECT DISTINCT ON (b.part) b.records FROM gapless.page_ledger b
    WHERE b.partition_id = l.partition_id AND b.pass = l.pass AND b.page = l.page AND b.part < l.part
    ORDER BY b.part, b.generation DESC, b."offset" DESC) b), 0)::int
FROM gapless.exception e
JOIN gapless.partition_id i ON i.id = e.partition_id
JOIN gapless.page_ledger l ON (l.partition, l.generation, l."offset", l.mapping_version)
  = (e.partition, e.generation, e."offset", e.mapping_version)
LEFT JOIN gapless.mapping_version v ON v.id = e.mapping_version
LEFT JOIN LATERAL (SELECT max(began) AS began FROM gapless.snapshot
  WHERE e.plan = 'snapshot' AND partition_id = e.partition_id AND snapshot = e.scope
    AND generation = e.generation) s ON true
WHERE e.state = 'retryable' AND e.due_at <= %(now)s AND e.partition = ANY(%(partitions)s)
  AND (e.reason = %(killed)s) = %(killers)s
ORDER BY e.due_at LIMIT %(limit)s FOR UPDATE OF e

-- name: settle
-- What a retry came to. `reason` and `detail` change only where it failed again.
UPDATE gapless.exception SET state = %(state)s, attempts = attempts + 1, due_at = %(due_at)s,
  reason = coalesce(%(reason)s, reason), detail = coalesce(%(detail)s, detail),
  decided_by = coalesce(%(decided_by)s, decided_by), decided_at = coalesce(%(decided_at)s, decided_at)
WHERE mapping_version = %(mapping_version)s AND partition = %(partition)s
  AND generation = %(generation)s AND "offset" = %(offset)s AND index = %(index)s

-- name: request
-- An operator wants these tried again: due now, with a full number of attempts. The ledger says so too.
WITH chosen AS (
  SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index
  FROM gapless.exception e LEFT JOIN gapless.mapping_version v ON v.id = e.mapping_version
  JOIN gapless.partition_id i ON i.id = e.partition_id
  WHERE e.state IN ('quarantined', 'retryable')
    AND (%(mapping)s::text IS NULL OR v.mapping = %(mapping)s)
    AND (%(partition_id)s::text IS NULL OR i.text = %(partition_id)s)
    AND (%(reason)s::text IS NULL OR e.reason = %(reason)s)
    AND (%(partition)s::int IS NULL OR e.partition = %(partition)s)
    AND (%(offset)s::bigint IS NULL OR e."offset" = %(offset)s)
    AND (%(index)s::int IS NULL OR e.index = %(index)s)
  FOR UPDATE OF e
)
UPDATE gapless.exception e SET state = %(state)s, attempts = 0, due_at = %(due_at)s,
  decided_by = %(by)s, decided_at = %(now)s, decided_note = %(note)s
FROM chosen c
WHERE e.mapping_version = c.mapping_version AND e.partition = c.partition
  AND e.generation = c.generation AND e."offset" = c."offset" AND e.index = c.index
RETURNING e.mapping_version, e.partition, e.generation, e."offset", e.index

-- name: first_index
-- Index of a ledger row's first record within its whole page: the records of the parts before it.
SELECT coalesce(sum(b.records), 0)::int FROM gapless.page_ledger l
JOIN LATERAL (SELECT DISTINCT ON (part) records FROM gapless.page_ledger
  WHERE partition_id = l.partition_id AND pass = l.pass AND page = l.page AND part < l.part
  ORDER BY part, generation DESC, "offset" DESC) b ON true
WHERE l.mapping_version = %(mapping_version)s AND l.partition = %(partition)s
  AND l.generation = %(generation)s AND l."offset" = %(offset)s

-- name: action
-- Decisions of operators are kept.
INSERT INTO gapless.operator_action (by, action, about, note)
VALUES (%(by)s, %(action)s, %(about)s, %(note)s)
