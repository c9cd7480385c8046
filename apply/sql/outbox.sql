-- Events to publish, written beside the rows that changed.

-- name: insert
-- The same change under the same identity is one event, however often it is applied.
INSERT INTO gapless.outbox (mapping, key, sequence, effect, type, topic, idempotency_key, payload)
SELECT * FROM unnest(%(mappings)s::text[], %(keys)s::text[], %(sequences)s::bigint[],
  %(effects)s::text[], %(types)s::text[], %(topics)s::text[], %(identities)s::text[],
  %(payloads)s::text[]::jsonb[])
ON CONFLICT (idempotency_key) DO NOTHING

-- name: newest_sequence
-- What the owner before may have issued: ours must be higher. Read after the claim.
SELECT coalesce(max(sequence), 0) FROM
  (SELECT sequence FROM gapless.outbox ORDER BY id DESC LIMIT 1000) newest

-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
