-- Exceptions that are tried again, by the owner of their partition only.

-- name: hold
-- Nothing of ours moves the position here, but the claim must still be ours; the lock keeps it so. What faults of
-- records have stopped is only freed by what is done here.
SELECT partition FROM gapless.position
WHERE pipeline = %(pipeline)s AND (halted IS NULL OR halted ->> 'cause' = 'record_faults')
  AND (partition, claim) IN (SELECT * FROM unnest(%(partitions)s::int[], %(claims)s::bigint[]))
ORDER BY partition FOR UPDATE

-- name: due
-- What is due, oldest first, but nothing that a newer version of the mapping than ours has tried; `only` what has one of
-- the `reasons`, or what has none of them. The part's first index follows from the parts before it.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, e.partition_id, i.text,
  v.mapping, e.plan, e.scope, e.source_epoch, e.original_offset, e.raw, e.attempts, e.fetched_at,
  e.as_of, e.run, e.reason, s.began, l.pass, l.page, l.part, l.parts,
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
  AND (e.reason = ANY(%(reasons)s)) = %(only)s
  AND NOT EXISTS (SELECT FROM gapless.mapping_version t
    JOIN unnest(%(names)s::text[], %(versions)s::int[]) AS ours (name, version) ON ours.name = t.mapping
    WHERE t.id = coalesce(e.tried_version, e.mapping_version) AND t.version > ours.version
      AND t.version <= (SELECT max(version) FROM gapless.mapping_version
        WHERE mapping = t.mapping AND state = 'live'))
  AND coalesce(v.state, 'live') NOT IN ('shadow', 'kept')
ORDER BY e.due_at LIMIT %(limit)s FOR UPDATE OF e SKIP LOCKED

-- name: still_due
-- Of what was found to be due and mapped since, what nobody has decided about meanwhile.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index
FROM gapless.exception e
JOIN unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[],
  %(offsets)s::bigint[], %(indexes)s::int[]) AS w (mapping_version, partition, generation, "offset", index)
  USING (mapping_version, partition, generation, "offset", index)
WHERE e.state = 'retryable' AND e.due_at <= %(now)s
ORDER BY e.partition, e.generation, e."offset", e.index, e.mapping_version FOR UPDATE OF e

-- name: begin
-- Durable before it is tried: should it end the process, it is a killer from then on. Returns what was said before;
-- no row: it was decided about meanwhile.
UPDATE gapless.exception e SET reason = %(reason)s, detail = %(detail)s
FROM gapless.exception old
WHERE (e.mapping_version, e.partition, e.generation, e."offset", e.index)
    = (%(mapping_version)s, %(partition)s, %(generation)s, %(offset)s, %(index)s)
  AND e.state = 'retryable' AND e.reason = %(before)s
  AND (old.mapping_version, old.partition, old.generation, old."offset", old.index)
    = (e.mapping_version, e.partition, e.generation, e."offset", e.index)
RETURNING old.detail

-- name: asked
-- What an operator speaks of: all filters that are given have to hold. In steps, each behind the one before. Locked,
-- since a later observation may come to stand for one of them just now: that one is asked for then, not this.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index
FROM gapless.exception e LEFT JOIN gapless.mapping_version v ON v.id = e.mapping_version
JOIN gapless.partition_id i ON i.id = e.partition_id
WHERE e.state IN ('quarantined', 'retryable')
  AND (%(mapping)s::text IS NULL OR v.mapping = %(mapping)s)
  AND (%(partition_id)s::text IS NULL OR i.text = %(partition_id)s)
  AND (%(tenant)s::text IS NULL OR i.tenant = %(tenant)s)
  AND (%(reason)s::text IS NULL OR e.reason = %(reason)s)
  AND (%(partition)s::int IS NULL OR e.partition = %(partition)s)
  AND (%(offset)s::bigint IS NULL OR e."offset" = %(offset)s)
  AND (%(index)s::int IS NULL OR e.index = %(index)s)
  AND (e.partition, e.generation, e."offset", e.index, e.mapping_version) > (%(after_partition)s::int,
    %(after_generation)s::int, %(after_offset)s::bigint, %(after_index)s::int, %(after_mapping_version)s::int)
ORDER BY e.partition, e.generation, e."offset", e.index, e.mapping_version LIMIT %(limit)s FOR UPDATE OF e

-- name: action
-- Decisions of operators are kept.
INSERT INTO gapless.operator_action (by, action, about, note)
VALUES (%(by)s, %(action)s, %(about)s, %(note)s)
