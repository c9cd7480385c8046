-- How much is in quarantine, and the halts that follow from it.

-- name: still_open
-- Which of these are in quarantine: others were merged, were dismissed before, or wait to be tried again.
SELECT e.mapping_version, e.partition, e."offset", e.index
FROM gapless.exception e
JOIN unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[],
  %(offsets)s::bigint[], %(indexes)s::int[]) AS w (mapping_version, partition, generation, "offset", index)
  USING (mapping_version, partition, generation, "offset", index)
WHERE e.state = 'quarantined'

-- name: opened
-- How many records of these mappings, in any version, are in quarantine.
SELECT v.mapping, e.partition, count(*) FROM gapless.exception e
JOIN gapless.mapping_version v ON v.id = e.mapping_version
WHERE e.state = 'quarantined' AND v.mapping = ANY(%(names)s) AND e.partition = ANY(%(partitions)s)
GROUP BY v.mapping, e.partition

-- name: stopped
-- Partitions that faults of records have stopped.
SELECT partition, halted FROM gapless.position
WHERE pipeline = 'live' AND halted ->> 'cause' = 'record_faults' AND partition = ANY(%(partitions)s)

-- name: go_on
-- Only its owner frees a partition, and only of this cause.
UPDATE gapless.position SET halted = NULL
WHERE pipeline = 'live' AND partition = %(partition)s AND claim = %(claim)s AND halted ->> 'cause' = 'record_faults'
