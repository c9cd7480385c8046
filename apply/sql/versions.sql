-- Mapping versions, as `gapless migrate` has registered them.

-- name: known
-- All versions of these mappings, oldest first.
SELECT mapping, id, version, hash, state, table_name FROM gapless.mapping_version
WHERE mapping = ANY(%(mappings)s) ORDER BY mapping, version

-- name: aside
-- Which of these versions no longer have the live table, and which one has it now. One that is newer than
-- the live one was swapped back, and has no table at all if that was dropped.
SELECT v.mapping, v.version, live.version FROM gapless.mapping_version v
LEFT JOIN LATERAL (SELECT max(n.version) AS version FROM gapless.mapping_version n
  WHERE n.mapping = v.mapping AND n.state = 'live') live ON true
WHERE v.id = ANY(%(ids)s) AND (v.state IN ('kept', 'shadow') OR v.version > live.version)
ORDER BY v.mapping

-- name: overtaken
-- Which of these versions are older than one that a replay in place has begun for, and that one. Never the
-- live one: a replay in place is of the live version, and a swap back makes an older one live again.
SELECT v.mapping, v.version, max(n.version) FROM gapless.mapping_version v
JOIN gapless.mapping_version n ON n.mapping = v.mapping AND n.version > v.version
  AND n.state NOT IN ('shadow', 'kept')
CROSS JOIN LATERAL (SELECT 'replay:' || n.mapping || ':' || n.version AS name) r
WHERE v.id = ANY(%(ids)s) AND v.state <> 'live' AND EXISTS (SELECT FROM gapless.position p
  WHERE p.pipeline = r.name OR starts_with(p.pipeline, r.name || ':'))
GROUP BY v.mapping, v.version ORDER BY v.mapping
