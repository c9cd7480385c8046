-- Marks of the log, the coverage that follows from them, and snapshots.

-- name: insert_marks
-- Keep what the log stated; `pending` until the ledger holds every page named.
INSERT INTO gapless.mark (partition, generation, "offset", partition_id, kind, plan, scope, body, state, at)
SELECT * FROM unnest(%(partitions)s::int[], %(generations)s::int2[], %(offsets)s::bigint[],
  %(partition_ids)s::int[], %(kinds)s::text[], %(plans)s::text[], %(scopes)s::text[],
  %(bodies)s::text[]::jsonb[], %(states)s::text[], %(ats)s::timestamptz[])

-- name: pending
-- Marks of these partition ids that still wait for pages, oldest first.
SELECT partition, generation, "offset", partition_id, body FROM gapless.mark
WHERE state = 'pending' AND partition_id = ANY(%(partition_ids)s)
ORDER BY partition, generation, "offset"

-- name: settle
-- What became of marks that waited.
UPDATE gapless.mark m SET state = w.state
FROM unnest(%(partitions)s::int[], %(generations)s::int2[], %(offsets)s::bigint[], %(states)s::text[])
  AS w (partition, generation, at_offset, state)
WHERE m.partition = w.partition AND m.generation = w.generation AND m."offset" = w.at_offset

-- name: overdue
-- Marks that wait longer than a mark may: pages that they name may be lost.
SELECT m.partition, m."offset", m.kind, m.plan, m.scope, i.text, m.applied_at
FROM gapless.mark m JOIN gapless.partition_id i ON i.id = m.partition_id
WHERE m.state = 'pending' AND m.partition = ANY(%(partitions)s) AND m.applied_at < %(before)s
ORDER BY m.applied_at LIMIT 100

-- name: waiting
-- How many marks wait, per partition.
SELECT partition, count(*) FROM gapless.mark
WHERE state = 'pending' AND partition = ANY(%(partitions)s) GROUP BY partition

-- name: coverage_near
-- Stretches that overlap or touch what is stated now.
SELECT c.partition_id, c.plan, c.start_at, c.end_at, c.state, c.run, c.reason, c.pages, c.records,
  c.errors, c.completed_at
FROM gapless.coverage c
JOIN unnest(%(partition_ids)s::int[], %(plans)s::text[], %(starts)s::timestamptz[], %(ends)s::timestamptz[])
  AS w (partition_id, plan, start_at, end_at)
  ON c.partition_id = w.partition_id AND c.plan = w.plan
WHERE c.end_at >= w.start_at AND c.start_at <= w.end_at

-- name: coverage_last
-- Where the coverage of plans without intervals ends: the next statement goes on from there.
SELECT partition_id, plan, max(end_at) FROM gapless.coverage
WHERE (partition_id, plan) IN (SELECT * FROM unnest(%(partition_ids)s::int[], %(plans)s::text[]))
GROUP BY partition_id, plan

-- name: coverage_remove
DELETE FROM gapless.coverage WHERE (partition_id, plan, start_at) IN
  (SELECT * FROM unnest(%(partition_ids)s::int[], %(plans)s::text[], %(starts)s::timestamptz[]))

-- name: coverage_insert
INSERT INTO gapless.coverage (partition_id, plan, start_at, end_at, state, run, reason, pages, records,
  errors, completed_at)
VALUES (%(partition_id)s, %(plan)s, %(start)s, %(end)s, %(state)s, %(run)s, %(reason)s, %(pages)s,
  %(records)s, %(errors)s, %(completed_at)s)

-- name: coverage_healed
-- An exception of this stretch ended well: one error less, if a mark has counted its page; the last one leaves the
-- stretch complete. Pages of passes that no mark names are counted nowhere. A later search may have replaced a part of
-- the stretch: its counts stayed with the first piece that was left (apply/coverage.py).
UPDATE gapless.coverage c SET errors = c.errors - 1,
  state = CASE WHEN c.errors <= 1 THEN 'complete' ELSE c.state END
FROM gapless.page_ledger l
WHERE l.mapping_version = %(mapping_version)s AND l.partition = %(partition)s
  AND l.generation = %(generation)s AND l."offset" = %(offset)s
  AND c.partition_id = l.partition_id AND c.plan = l.plan AND c.start_at = (
    SELECT min(n.start_at) FROM gapless.coverage n
    WHERE n.partition_id = l.partition_id AND n.plan = l.plan AND n.state = 'complete_with_errors'
      AND n.start_at < %(end)s AND n.end_at > %(start)s AND n.errors > 0)
  AND EXISTS (SELECT FROM gapless.mark m WHERE m.partition_id = l.partition_id AND m.scope = l.scope
    AND m.state = 'done' AND m.body -> 'passes' @> jsonb_build_array(jsonb_build_object('pass', l.pass)))

-- name: coverage_hurt
-- The opposite: an exception of this stretch counts again, if a mark has counted its page.
UPDATE gapless.coverage c SET errors = c.errors + 1, state = 'complete_with_errors'
FROM gapless.page_ledger l
WHERE l.mapping_version = %(mapping_version)s AND l.partition = %(partition)s
  AND l.generation = %(generation)s AND l."offset" = %(offset)s
  AND c.partition_id = l.partition_id AND c.plan = l.plan AND c.start_at = (
    SELECT min(n.start_at) FROM gapless.coverage n
    WHERE n.partition_id = l.partition_id AND n.plan = l.plan AND n.state IN ('complete', 'complete_with_errors')
      AND n.start_at < %(end)s AND n.end_at > %(start)s)
  AND EXISTS (SELECT FROM gapless.mark m WHERE m.partition_id = l.partition_id AND m.scope = l.scope
    AND m.state = 'done' AND m.body -> 'passes' @> jsonb_build_array(jsonb_build_object('pass', l.pass)))
