-- Copies of quarantined records, in the transaction that quarantines them.

-- name: write
-- One copy per exception, whatever is retried and refused again. Details hold no personal data.
WITH fresh AS (
  UPDATE gapless.exception e SET copied_at = %(now)s
  FROM unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[],
    %(offsets)s::bigint[], %(indexes)s::int[]) AS w (mapping_version, partition, generation, "offset", index)
  WHERE (e.partition, e.generation, e."offset", e.index, e.mapping_version)
    = (w.partition, w.generation, w."offset", w.index, w.mapping_version)
    AND e.state = 'quarantined' AND e.copied_at IS NULL
  RETURNING e.mapping_version, e.partition, e.generation, e."offset", e.index, e.partition_id, e.reason, e.detail,
    concat_ws('/', e.partition, e.generation, e."offset", e.index, e.mapping_version) AS place
)
INSERT INTO gapless.outbox (mapping, key, sequence, effect, type, topic, idempotency_key, payload, headers)
SELECT coalesce(v.mapping, '-'), f.place,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + row_number() OVER (ORDER BY f."offset", f.index),
  'quarantined', 'gapless.quarantined', %(topic)s, 'quarantined/' || f.place,
  jsonb_build_object('mapping_version', f.mapping_version, 'partition', f.partition, 'generation', f.generation,
    'offset', f."offset", 'index', f.index), jsonb_build_object(
      '__connect.errors.topic', %(log)s::text, '__connect.errors.partition', f.partition::text,
      '__connect.errors.offset', f."offset"::text, '__connect.errors.connector.name', %(connector)s::text,
      '__connect.errors.task.id', f.partition::text,
      '__connect.errors.stage', coalesce(%(stages)s::jsonb ->> f.reason, 'TRANSFORMATION'),
      '__connect.errors.class.name', 'gapless.mapping.' || coalesce(v.mapping || '.v' || v.version, 'none'),
      '__connect.errors.exception.class.name', 'gapless.' || f.reason,
      '__connect.errors.exception.message', f.detail,
      '__connect.errors.exception.stacktrace', '',
      'gapless.record', f.partition || '/' || f."offset" || '/' || f.index,
      'gapless.partition_id', i.text)
FROM fresh f JOIN gapless.partition_id i ON i.id = f.partition_id
LEFT JOIN gapless.mapping_version v ON v.id = f.mapping_version
ORDER BY f."offset", f.index
ON CONFLICT (idempotency_key) DO NOTHING
