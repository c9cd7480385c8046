-- Exceptions change their state here only. Which states an event may leave, and which one it reaches, comes from
-- the table in the code (apply/exception_states.py). Arrays run in parallel: they name rows by their coordinates.

-- name: move
-- One event on many exceptions: those in another state than the event may find stay as they are. `fresh`: the tries
-- are counted anew; `tried`: one more. `told`: the history keeps it.
WITH moved AS (
  UPDATE gapless.exception e SET state = %(target)s, due_at = %(due_at)s,
    attempts = CASE WHEN %(fresh)s THEN 0 ELSE e.attempts + %(tried)s END,
    sightings = CASE WHEN %(target)s IN ('retryable', 'quarantined') THEN greatest(e.sightings, 1) ELSE e.sightings END,
    reason = coalesce(%(reason)s, e.reason), detail = coalesce(%(detail)s, e.detail),
    tried_version = coalesce(%(tried_version)s, e.tried_version),
    decided_by = coalesce(%(by)s, e.decided_by),
    decided_note = CASE WHEN %(by)s::text IS NULL THEN e.decided_note ELSE %(note)s END,
    decided_at = CASE WHEN %(by)s::text IS NULL THEN e.decided_at ELSE %(now)s END
  FROM (
    SELECT o.mapping_version, o.partition, o.generation, o."offset", o.index, o.state
    FROM gapless.exception o
    JOIN unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[],
      %(offsets)s::bigint[], %(indexes)s::int[]) AS w (mapping_version, partition, generation, "offset", index)
      USING (mapping_version, partition, generation, "offset", index)
    WHERE o.state = ANY(%(sources)s)
    ORDER BY o.partition, o.generation, o."offset", o.index, o.mapping_version FOR UPDATE OF o
  ) old
  WHERE (e.partition, e.generation, e."offset", e.index, e.mapping_version)
    = (old.partition, old.generation, old."offset", old.index, old.mapping_version)
  RETURNING e.*, old.state AS before
), told AS (
  INSERT INTO gapless.exception_history (mapping_version, partition, generation, "offset", index, at, event, state,
    reason, detail, by, note)
  SELECT mapping_version, partition, generation, "offset", index, %(now)s, %(event)s, state, reason, detail,
    %(by)s, %(note)s
  FROM moved WHERE %(told)s
)
SELECT mapping_version, partition, generation, "offset", index, partition_id, plan, scope, fingerprint, content, before
FROM moved

-- name: same
-- Open exceptions of the same records, and what of them was dismissed. Who decides about one just now is not waited
-- for: it is merged when it is seen again.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, e.partition_id, e.fingerprint, e.reason,
  e.state, e.content, e.sightings, e.first_seen_at, e.last_seen_at, e.attempts, e.due_at, e.copied_at
FROM gapless.exception e
JOIN (SELECT DISTINCT * FROM unnest(%(partition_ids)s::int[], %(mapping_versions)s::int[], %(fingerprints)s::bytea[],
  %(reasons)s::text[])) AS w (partition_id, mapping_version, fingerprint, reason)
  ON (e.partition_id, e.mapping_version, e.fingerprint, e.reason)
    = (w.partition_id, w.mapping_version, w.fingerprint, w.reason)
WHERE e.state IN ('retryable', 'quarantined') OR e.state = 'dismissed' AND e.sightings > 0
ORDER BY e.partition, e.generation, e."offset", e.index, e.mapping_version FOR UPDATE OF e SKIP LOCKED

-- name: since
-- New exceptions are as old as the oldest open one of their record: it was refused then and has not landed since,
-- whatever version of its mapping and whatever reason that was. The same place is the same record, also where another
-- version reads another key. What was decided about does not count.
WITH fresh AS (
  SELECT n.*, a.id AS version FROM gapless.exception n
  JOIN unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[],
    %(offsets)s::bigint[], %(indexes)s::int[]) AS w (mapping_version, partition, generation, "offset", index)
    USING (mapping_version, partition, generation, "offset", index)
  JOIN gapless.mapping_version v ON v.id = n.mapping_version
  JOIN gapless.mapping_version a ON a.mapping = v.mapping
  WHERE n.state IN ('retryable', 'quarantined')
), known AS (
  SELECT f.mapping_version, f.partition, f.generation, f."offset", f.index, o.first_seen_at
  FROM fresh f JOIN gapless.exception o
    ON (o.partition_id, o.mapping_version, o.fingerprint) = (f.partition_id, f.version, f.fingerprint)
  WHERE o.state IN ('retryable', 'quarantined', 'repeated')
  UNION ALL
  SELECT f.mapping_version, f.partition, f.generation, f."offset", f.index, o.first_seen_at
  FROM fresh f JOIN gapless.exception o ON (o.partition, o.generation, o."offset", o.index, o.mapping_version)
    = (f.partition, f.generation, f."offset", f.index, f.version)
  WHERE o.state IN ('retryable', 'quarantined', 'repeated')
), oldest AS (
  SELECT mapping_version, partition, generation, "offset", index, min(first_seen_at) AS since
  FROM known GROUP BY 1, 2, 3, 4, 5
)
UPDATE gapless.exception e SET first_seen_at = o.since FROM oldest o
WHERE (e.partition, e.generation, e."offset", e.index, e.mapping_version)
  = (o.partition, o.generation, o."offset", o.index, o.mapping_version) AND e.first_seen_at > o.since

-- name: stand
-- One row stands for what others were: counts and times of all of them.
UPDATE gapless.exception SET sightings = %(sightings)s, first_seen_at = %(first_seen_at)s,
  last_seen_at = %(last_seen_at)s, attempts = %(attempts)s, due_at = %(due_at)s, copied_at = %(copied_at)s
WHERE mapping_version = %(mapping_version)s AND partition = %(partition)s
  AND generation = %(generation)s AND "offset" = %(offset)s AND index = %(index)s

-- name: cover
-- Another row stands for this one; its bytes are kept only where they differ. The relay finds them there.
UPDATE gapless.exception SET sightings = 0, raw = CASE WHEN %(same)s THEN NULL ELSE raw END
WHERE mapping_version = %(mapping_version)s AND partition = %(partition)s
  AND generation = %(generation)s AND "offset" = %(offset)s AND index = %(index)s

-- name: covered
-- What these rows stood for: other observations of the same records, and whether their own bytes were kept.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, e.fingerprint, e.content, e.raw IS NOT NULL
FROM gapless.exception e
JOIN (SELECT DISTINCT * FROM unnest(%(partition_ids)s::int[], %(mapping_versions)s::int[], %(fingerprints)s::bytea[]))
  AS w (partition_id, mapping_version, fingerprint)
  ON (e.partition_id, e.mapping_version, e.fingerprint) = (w.partition_id, w.mapping_version, w.fingerprint)
WHERE e.state = 'repeated'

-- name: remappable
-- What an older version of a mapping has refused, the version in use has not tried, and a mapping may cure.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, ours.id
FROM gapless.exception e
JOIN gapless.mapping_version v ON v.id = e.mapping_version
JOIN unnest(%(names)s::text[], %(versions)s::int[], %(ids)s::int[]) AS ours (name, version, id) ON ours.name = v.mapping
LEFT JOIN gapless.mapping_version t ON t.id = e.tried_version
WHERE v.version < ours.version AND v.state NOT IN ('shadow', 'kept') AND coalesce(t.version, v.version) < ours.version
  AND e.state = ANY(%(sources)s) AND e.raw IS NOT NULL AND e.reason <> ALL(%(by_hand)s)
  AND e.partition = ANY(%(partitions)s)
ORDER BY ours.id, e.partition, e.generation, e."offset", e.index LIMIT %(limit)s FOR UPDATE OF e SKIP LOCKED

-- name: expired
-- Evidence of what was decided, older than its mapping wants it kept.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, e.state
FROM gapless.exception e
LEFT JOIN gapless.mapping_version v ON v.id = e.mapping_version
LEFT JOIN unnest(%(names)s::text[], %(keeps)s::float8[]) AS k (name, keep_s) ON k.name = v.mapping
WHERE e.state = ANY(%(sources)s) AND e.partition = ANY(%(partitions)s)
  AND e.decided_at < %(now)s - make_interval(secs => coalesce(k.keep_s, %(keep_s)s))
  AND (e.state <> 'dismissed' OR e.raw IS NOT NULL OR e.key IS NOT NULL)
ORDER BY e.decided_at LIMIT %(limit)s FOR UPDATE OF e SKIP LOCKED

-- name: drop
WITH w AS (
  SELECT * FROM unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[],
    %(offsets)s::bigint[], %(indexes)s::int[]) AS w (mapping_version, partition, generation, "offset", index)
), gone AS (
  DELETE FROM gapless.exception_history h USING w
  WHERE (h.partition, h."offset", h.index, h.generation, h.mapping_version)
    = (w.partition, w."offset", w.index, w.generation, w.mapping_version)
)
DELETE FROM gapless.exception e USING w WHERE (e.partition, e.generation, e."offset", e.index, e.mapping_version)
  = (w.partition, w.generation, w."offset", w.index, w.mapping_version) AND e.state = ANY(%(sources)s)

-- name: strip
-- The proof of a decision stays as long as its ledger row; the record itself goes.
UPDATE gapless.exception e SET raw = NULL, key = NULL
FROM unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[],
  %(offsets)s::bigint[], %(indexes)s::int[]) AS w (mapping_version, partition, generation, "offset", index)
WHERE (e.partition, e.generation, e."offset", e.index, e.mapping_version)
  = (w.partition, w.generation, w."offset", w.index, w.mapping_version) AND e.state = ANY(%(sources)s)

-- name: overtaken
-- Quarantined records whose entity has a row of a later epoch or observation. The row's own names are filled in; a
-- record whose bytes another one has is decided with that one. Rows of the live table say nothing of one beside it.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, e.partition_id, e.source_epoch,
  e.original_offset, e.raw, e.plan, e.fetched_at, e.as_of, e.run, i.text, s.began,
  %(revision)s, t._source_epoch, t._generation, t._offset, t._index, t._mapping_version, t._began
FROM gapless.exception e
JOIN gapless.mapping_version v ON v.id = e.mapping_version
JOIN gapless.partition_id i ON i.id = e.partition_id
JOIN %(target)s t ON %(keys)s
LEFT JOIN LATERAL (SELECT max(began) AS began FROM gapless.snapshot
  WHERE e.plan = 'snapshot' AND partition_id = e.partition_id AND snapshot = e.scope
    AND generation = e.generation) s ON true
WHERE v.mapping = %%s AND v.state NOT IN ('shadow', 'kept') AND e.partition = ANY(%%s) AND e.key IS NOT NULL
  AND (e.state = 'quarantined' OR e.state = 'repeated' AND e.raw IS NOT NULL)
  AND (e.partition, e.generation, e."offset", e.index, e.mapping_version) > (%%s, %%s, %%s, %%s, %%s)
  AND t._partition_id = e.partition_id
  AND (t._source_epoch > e.source_epoch OR t._source_epoch = e.source_epoch
    AND (t._generation, t._offset, t._index) > (e.generation, e.original_offset, e.index))
ORDER BY e.partition, e.generation, e."offset", e.index, e.mapping_version LIMIT %%s
