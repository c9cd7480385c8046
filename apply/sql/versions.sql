-- Mapping versions, as `gapless migrate` has registered them.

-- name: all
SELECT mapping, version, id, hash, state FROM gapless.mapping_version

-- name: aside
-- Which of these versions no longer have the live table, and which one has it now.
SELECT v.mapping, v.version, (SELECT max(n.version) FROM gapless.mapping_version n
  WHERE n.mapping = v.mapping AND n.state = 'live')
FROM gapless.mapping_version v WHERE v.id = ANY(%(ids)s) AND v.state IN ('kept', 'shadow')
ORDER BY v.mapping
