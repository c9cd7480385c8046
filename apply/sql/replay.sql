-- A replay's own positions; the live pipeline goes on beside it.

-- name: live
-- Where live stands and which versions it applies; a partition without an owner is applied by nobody.
SELECT partition, generation, next_offset_to_apply, owner IS NOT NULL, mapping_versions
FROM gapless.position WHERE pipeline = 'live' ORDER BY partition

-- name: own
SELECT partition, generation, next_offset_to_apply, end_offset FROM gapless.position
WHERE pipeline = %(pipeline)s

-- name: begin
-- The end is where live stands now: everything behind it is applied under the new version anyway.
INSERT INTO gapless.position (pipeline, partition, generation, next_offset_to_apply, end_offset)
VALUES (%(pipeline)s, %(partition)s, %(generation)s, %(start)s, %(end)s)
ON CONFLICT (pipeline, partition) DO UPDATE SET generation = EXCLUDED.generation,
  next_offset_to_apply = EXCLUDED.next_offset_to_apply, end_offset = EXCLUDED.end_offset,
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

-- name: known_exceptions
-- Open exceptions of older versions among these pages, for a dry run.
SELECT e."offset", e.index FROM gapless.exception e
JOIN gapless.mapping_version old ON old.id = e.mapping_version
JOIN gapless.mapping_version new ON new.id = %(mapping_version)s AND new.mapping = old.mapping
  AND old.version < new.version
WHERE e.state IN ('retryable', 'quarantined') AND e.partition = %(partition)s
  AND e.generation = %(generation)s AND e."offset" = ANY(%(offsets)s)
