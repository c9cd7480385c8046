-- A replay's own positions; the live pipeline goes on beside it.

-- name: live
-- Where live stands and which versions it applies; a partition without an owner is applied by nobody.
SELECT partition, generation, next_offset_to_apply, owner IS NOT NULL, mapping_versions
FROM gapless.position WHERE pipeline = 'live' ORDER BY partition

-- name: own
-- Without an owner it came to its end; with one it is not done, though it may have read all it meant to.
SELECT partition, generation, next_offset_to_apply, end_offset, owner IS NOT NULL FROM gapless.position
WHERE pipeline = %(pipeline)s

-- name: judging
-- The versions that may speak for a page once a replay has ended: this one, and any newer.
SELECT n.id FROM gapless.mapping_version v JOIN gapless.mapping_version n ON n.mapping = v.mapping
  AND n.version >= v.version WHERE v.id = %(mapping_version)s

-- name: older_owners
-- Who applies without any of these versions, and where.
SELECT partition, owner FROM gapless.position
WHERE pipeline = 'live' AND owner IS NOT NULL AND NOT mapping_versions && %(judging)s::int[]
ORDER BY partition

-- name: unjudged
-- Partitions where live has applied pages of the stream that none of these versions has judged, behind what
-- a replay has covered; with where that ends and where live stands. What begins anew counts from its begin.
SELECT p.partition, p.generation, c.generation, c.end_at, p.next_offset_to_apply
FROM gapless.position p
LEFT JOIN unnest(%(partitions)s::int[], %(generations)s::int2[], %(ends)s::int8[])
  AS c (partition, generation, end_at) ON c.partition = p.partition
WHERE p.pipeline = 'live' AND (%(within)s::int IS NULL OR p.partition = %(within)s) AND EXISTS (
  SELECT FROM gapless.page_ledger l JOIN gapless.partition_id i ON i.id = l.partition_id
  WHERE l.partition = p.partition AND l.generation = p.generation
    AND l."offset" >= CASE WHEN c.generation = p.generation THEN c.end_at ELSE 0 END
    AND i.source = %(source)s AND i.stream = %(stream)s
    AND (%(only)s::text IS NULL OR i.text = %(only)s)
    AND NOT EXISTS (SELECT FROM gapless.page_ledger n WHERE (n.partition, n.generation, n."offset")
      = (l.partition, l.generation, l."offset") AND n.mapping_version = ANY(%(judging)s::int[])))
ORDER BY p.partition

-- name: extend
-- Only whoever holds the claim may give its replay more to do.
UPDATE gapless.position SET end_offset = %(end)s
WHERE pipeline = %(pipeline)s AND partition = %(partition)s AND claim = %(claim)s
RETURNING partition

-- name: begin
-- The end is where live stands now: everything behind it is applied under the new version anyway.
INSERT INTO gapless.position
  (pipeline, partition, generation, next_offset_to_apply, start_offset, end_offset)
VALUES (%(pipeline)s, %(partition)s, %(generation)s, %(start)s, %(start)s, %(end)s)
ON CONFLICT (pipeline, partition) DO UPDATE SET generation = EXCLUDED.generation,
  next_offset_to_apply = EXCLUDED.next_offset_to_apply, end_offset = EXCLUDED.end_offset,
  start_offset = EXCLUDED.start_offset,
  last_offset = NULL, last_key = NULL, leader_epoch = NULL, claim = gapless.position.claim + 1

-- name: replaced
-- Open exceptions of older versions whose record the new version has judged: it speaks for them now.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, e.scope,
  n.mapping_version IS NULL
FROM gapless.exception e
JOIN gapless.mapping_version old ON old.id = e.mapping_version
JOIN gapless.mapping_version new ON new.id = %(mapping_version)s AND new.mapping = old.mapping
  AND old.version < new.version
JOIN gapless.page_ledger l ON (l.partition, l.generation, l."offset") = (e.partition, e.generation, e."offset")
  AND l.mapping_version = new.id
LEFT JOIN gapless.exception n ON (n.partition, n.generation, n."offset", n.index)
  = (e.partition, e.generation, e."offset", e.index) AND n.mapping_version = new.id
WHERE e.state IN ('retryable', 'quarantined', 'repeated')
ORDER BY e.partition, e.generation, e."offset", e.index LIMIT 500 FOR UPDATE OF e

-- name: recalled
-- What this version had refused and a replay of another one ended: since it is live again, it speaks for itself. Of
-- each whether another row stood for it, and whether coverage has lost its error: the version that left refused it not.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, e.sightings = 0, e.scope,
  n.mapping_version IS NULL
FROM gapless.exception e
JOIN gapless.mapping_version own ON own.id = e.mapping_version
LEFT JOIN gapless.mapping_version other ON other.mapping = own.mapping AND other.state = 'kept'
LEFT JOIN gapless.exception n ON (n.partition, n.generation, n."offset", n.index)
  = (e.partition, e.generation, e."offset", e.index) AND n.mapping_version = other.id
WHERE e.mapping_version = %(mapping_version)s AND e.state = 'dismissed' AND e.decided_by = %(by)s
  AND starts_with(e.decided_note, %(note)s)
ORDER BY e.partition, e.generation, e."offset", e.index LIMIT 500 FOR UPDATE OF e

-- name: known_exceptions
-- Open exceptions among these pages of the version that is live, or an older one, for a dry run.
SELECT DISTINCT ON (e."offset", e.index) e."offset", e.index, e.reason, e.partition_id, e.fingerprint
FROM gapless.exception e
JOIN gapless.mapping_version v ON v.id = e.mapping_version AND v.mapping = %(mapping)s
  AND v.version <= %(version)s AND v.state NOT IN ('shadow', 'kept')
WHERE e.state IN ('retryable', 'quarantined', 'repeated') AND e.partition = %(partition)s
  AND e.generation = %(generation)s AND e."offset" = ANY(%(offsets)s)
ORDER BY e."offset", e.index, v.version DESC

-- name: stage_faults
-- Records that a dry run finds to fail or to heal, once for each sighting: too many for the memory of a process.
CREATE TEMPORARY TABLE replay_faults (heals bool NOT NULL, reason text NOT NULL, partition_id int4 NOT NULL,
  record bytea NOT NULL)

-- name: faults
-- Records, however often each was seen.
SELECT heals, reason, count(DISTINCT (partition_id, record)) AS records FROM replay_faults
GROUP BY heals, reason ORDER BY records DESC, reason

-- name: tenants
SELECT text, tenant FROM gapless.partition_id WHERE source = %(source)s AND stream = %(stream)s

-- name: numbers
SELECT text, id FROM gapless.partition_id

-- name: stage_pages
-- What a dry run has read: the outcomes of every page, as the ledger would have them.
CREATE TEMPORARY TABLE replay_pages (partition_id int NOT NULL, generation int2 NOT NULL,
  "offset" int8 NOT NULL, first_index int NOT NULL, outcomes bytea NOT NULL)

-- name: stage_ends
CREATE TEMPORARY TABLE IF NOT EXISTS replay_ends (partition_id int PRIMARY KEY, end_at int8 NOT NULL)

-- name: fill_ends
INSERT INTO replay_ends SELECT i.id, w.end_at FROM gapless.partition_id i
JOIN unnest(%(partitions)s::int[], %(ends)s::int8[]) AS w (partition, end_at) USING (partition)
ON CONFLICT (partition_id) DO UPDATE SET end_at = EXCLUDED.end_at

-- name: index_pages
CREATE INDEX ON replay_pages (partition_id, generation, "offset")

-- name: lag
-- Where live stands, where somebody applies.
SELECT partition, next_offset_to_apply FROM gapless.position
WHERE pipeline = 'live' AND halted IS NULL AND EXISTS (SELECT FROM pg_stat_activity a
  WHERE a.pid = backend_pid AND a.backend_start = position.backend_start)
