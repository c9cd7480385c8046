-- Mapping versions, as `gapless migrate` has registered them.

-- name: all
SELECT mapping, version, id, hash, state FROM gapless.mapping_version

-- name: aside
-- Which of these versions no longer have the live table, and which one has it now.
SELECT v.mapping, v.version, (SELECT max(n.version) FROM gapless.mapping_version n
  WHERE n.mapping = v.mapping AND n.state = 'live')
FROM gapless.mapping_version v WHERE v.id = ANY(%(ids)s) AND v.state IN ('kept', 'shadow')
ORDER BY v.mapping

-- name: overtaken
-- Which of these versions are older than one that a replay in place has begun for, and that one.
SELECT v.mapping, v.version, max(n.version) FROM gapless.mapping_version v
JOIN gapless.mapping_version n ON n.mapping = v.mapping AND n.version > v.version
  AND n.state NOT IN ('shadow', 'kept')
CROSS JOIN LATERAL (SELECT 'replay:' || n.mapping || ':' || n.version AS name) r
WHERE v.id = ANY(%(ids)s) AND EXISTS (SELECT FROM gapless.position p
  WHERE p.pipeline = r.name OR starts_with(p.pipeline, r.name || ':'))
GROUP BY v.mapping, v.version ORDER BY v.mapping
