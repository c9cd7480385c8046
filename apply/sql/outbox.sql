-- Events to publish, written beside the rows that changed.

-- name: stage
-- Events arrive by COPY: as parameters their JSON would be escaped character by character.
CREATE TEMPORARY TABLE stage_outbox (mapping text, key text, sequence bigint, effect text, type text,
  topic text, idempotency_key text, payload jsonb) ON COMMIT DELETE ROWS

-- name: copy
COPY stage_outbox FROM STDIN (FORMAT BINARY)

-- name: insert
-- In the order of their sequences. The same change under the same identity is one event, however
-- often it is applied.
INSERT INTO gapless.outbox (mapping, key, sequence, effect, type, topic, idempotency_key, payload)
SELECT * FROM stage_outbox ORDER BY sequence
ON CONFLICT (idempotency_key) DO NOTHING

-- name: empty
DELETE FROM stage_outbox

-- name: newest_sequence
-- What the owner before may have issued: ours must be higher. Read after the claim. The relay, which removes
-- what was sent long ago, leaves these rows alone (ops/relay/pruning.py).
SELECT coalesce(max(sequence), 0) FROM
  (SELECT sequence FROM gapless.outbox ORDER BY id DESC LIMIT 1000) newest

-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
