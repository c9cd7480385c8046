-- Mapping versions, as `gapless migrate` has registered them.

-- name: all
SELECT mapping, version, id, hash, state FROM gapless.mapping_version
