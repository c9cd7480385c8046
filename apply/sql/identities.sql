-- Numbers of partition ids.

-- name: all
SELECT text, id FROM gapless.partition_id

-- name: number
-- Registers a partition id at its first sight. An update of the partition happens only where an
-- operator moved the deployment to topics of another size.
INSERT INTO gapless.partition_id (text, source, stream, tenant, partition)
VALUES (%(text)s, %(source)s, %(stream)s, %(tenant)s, %(partition)s)
ON CONFLICT (text) DO UPDATE SET partition = EXCLUDED.partition
RETURNING id
