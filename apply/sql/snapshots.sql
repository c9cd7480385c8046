-- Snapshots: from the begin mark to the sweep. One row per mapping version of the stream. Versions whose
-- table stands beside the live one go through the log in their own time: `beside` is the number of one,
-- NULL for the live pipeline, which then leaves all of them alone.

-- name: known
-- The last snapshots of each partition id of a partition of the log, for whoever takes it over. The
-- last column: a sweep may still ask for its presence.
SELECT text, snapshot, began, asked FROM (
  SELECT i.text, s.snapshot, min(s.began) AS began,
    bool_or(s.state IN ('open', 'held', 'released') OR s.completed IS NOT NULL AND NOT s.stable) AS asked,
    row_number() OVER (PARTITION BY i.id ORDER BY min(s.began) DESC) AS age
  FROM gapless.snapshot s JOIN gapless.partition_id i ON i.id = s.partition_id
  WHERE i.partition = %(partition)s AND s.generation = %(generation)s AND s.state <> 'dropped'
    AND (CASE WHEN %(beside)s::int IS NULL THEN NOT EXISTS (SELECT FROM gapless.mapping_version v
    WHERE v.id = s.mapping_version AND v.state IN ('shadow', 'kept')) ELSE s.mapping_version = %(beside)s END)
  GROUP BY i.id, i.text, s.snapshot
) newest WHERE age <= %(most)s

-- name: drop_open
-- A newer snapshot began: what was begun before it will never be complete.
UPDATE gapless.snapshot SET state = 'dropped', note = 'a newer snapshot began before this was complete'
WHERE partition_id = %(partition_id)s AND state = 'open' AND snapshot <> %(snapshot)s
  AND (generation, began) < (%(generation)s::int2, %(began)s::bigint)
  AND (CASE WHEN %(beside)s::int IS NULL THEN NOT EXISTS (SELECT FROM gapless.mapping_version v
    WHERE v.id = mapping_version AND v.state IN ('shadow', 'kept')) ELSE mapping_version = %(beside)s END)
RETURNING mapping_version, snapshot

-- name: drop_marks
-- Their marks wait for nothing any more.
UPDATE gapless.mark SET state = 'dropped'
WHERE partition_id = %(partition_id)s AND state = 'pending' AND kind = 'snapshot_complete'
  AND scope <> %(snapshot)s

-- name: begin
-- A begin mark that is repeated keeps the first offset: that deletes less.
INSERT INTO gapless.snapshot (mapping_version, partition_id, snapshot, generation, began, state)
SELECT mv, %(partition_id)s, %(snapshot)s, %(generation)s, %(began)s, 'open'
FROM unnest(%(mapping_versions)s::int[]) mv
ON CONFLICT (partition_id, snapshot, mapping_version) DO NOTHING

-- name: count
-- What this batch added to the presence of open snapshots.
UPDATE gapless.snapshot s SET listed = s.listed + w.listed, unreadable = s.unreadable + w.unreadable
FROM unnest(%(partition_ids)s::int[], %(snapshots)s::text[], %(mapping_versions)s::int[],
  %(listed)s::bigint[], %(unreadable)s::bigint[])
  AS w (partition_id, snapshot, mapping_version, listed, unreadable)
WHERE s.partition_id = w.partition_id AND s.snapshot = w.snapshot AND s.mapping_version = w.mapping_version

-- name: completed
-- The complete mark was read; whether all its pages are there is asked beside this.
UPDATE gapless.snapshot SET completed = %(completed)s, stable = %(stable)s
WHERE partition_id = %(partition_id)s AND snapshot = %(snapshot)s AND state = 'open'
  AND (CASE WHEN %(beside)s::int IS NULL THEN NOT EXISTS (SELECT FROM gapless.mapping_version v
    WHERE v.id = mapping_version AND v.state IN ('shadow', 'kept')) ELSE mapping_version = %(beside)s END)
RETURNING mapping_version

-- name: rows
-- The rows of a snapshot in one state, with what its complete mark said.
SELECT s.mapping_version, s.partition_id, s.snapshot, s.generation, s.began, s.stable, s.unreadable,
  m.source_epoch, m.at
FROM gapless.snapshot s
LEFT JOIN LATERAL (SELECT (body->>'source_epoch')::int AS source_epoch, at FROM gapless.mark
  WHERE partition_id = s.partition_id AND kind = 'snapshot_complete' AND scope = s.snapshot
  ORDER BY generation DESC, "offset" DESC LIMIT 1) m ON true
WHERE s.partition_id = %(partition_id)s AND s.snapshot = %(snapshot)s AND s.state = %(state)s
  AND (CASE WHEN %(beside)s::int IS NULL THEN NOT EXISTS (SELECT FROM gapless.mapping_version v
    WHERE v.id = s.mapping_version AND v.state IN ('shadow', 'kept')) ELSE s.mapping_version = %(beside)s END)
ORDER BY s.mapping_version FOR UPDATE OF s

-- name: previous
-- The complete snapshot before this one, for listings where one absence is no proof.
SELECT snapshot, began FROM gapless.snapshot
WHERE partition_id = %(partition_id)s AND mapping_version = ANY(%(mapping_versions)s)
  AND generation = %(generation)s AND began < %(began)s AND completed IS NOT NULL AND unreadable = 0
  AND NOT stable
  AND state IN ('swept', 'kept', 'held', 'released')
ORDER BY began DESC LIMIT 1

-- name: newer
-- Snapshots that began behind this one.
SELECT DISTINCT snapshot FROM gapless.snapshot
WHERE partition_id = %(partition_id)s
  AND (generation, began) > (%(generation)s::int2, %(began)s::bigint)

-- name: end
UPDATE gapless.snapshot SET state = %(state)s, note = %(note)s, swept = %(swept)s, barrier = %(barrier)s
WHERE partition_id = %(partition_id)s AND snapshot = %(snapshot)s AND mapping_version = %(mapping_version)s

-- name: drop_held
-- A newer complete snapshot knows better than one whose sweep was never released.
UPDATE gapless.snapshot SET state = 'dropped', note = 'a newer snapshot is complete'
WHERE partition_id = %(partition_id)s AND mapping_version = ANY(%(mapping_versions)s)
  AND state IN ('held', 'released') AND began < %(began)s AND snapshot <> %(snapshot)s

-- name: released
-- Sweeps that an operator released.
SELECT DISTINCT s.partition_id, i.text, i.partition, s.snapshot
FROM gapless.snapshot s JOIN gapless.partition_id i ON i.id = s.partition_id
WHERE s.state = 'released' AND i.partition = ANY(%(partitions)s)
  AND (CASE WHEN %(beside)s::int IS NULL THEN NOT EXISTS (SELECT FROM gapless.mapping_version v
    WHERE v.id = s.mapping_version AND v.state IN ('shadow', 'kept')) ELSE s.mapping_version = %(beside)s END)

-- name: release
-- An operator's decision: the owner of the partition sweeps next.
UPDATE gapless.snapshot s SET state = 'released', note = %(note)s
FROM gapless.partition_id i
WHERE i.id = s.partition_id AND i.text = %(partition_id)s AND s.snapshot = %(snapshot)s AND s.state = 'held'
RETURNING s.mapping_version

-- name: adopt
-- A new version of a mapping goes on with the snapshots of the one before, if the table is the same.
UPDATE gapless.snapshot s SET mapping_version = %(mapping_version)s
FROM gapless.partition_id i, gapless.mapping_version old, gapless.mapping_version new
WHERE i.id = s.partition_id AND i.partition = %(partition)s
  AND old.id = s.mapping_version AND new.id = %(mapping_version)s
  AND old.mapping = new.mapping AND old.table_name = new.table_name AND old.id <> new.id
  AND old.state NOT IN ('shadow', 'kept')
  AND NOT EXISTS (SELECT 1 FROM gapless.snapshot t WHERE t.partition_id = s.partition_id
    AND t.snapshot = s.snapshot AND t.mapping_version = %(mapping_version)s)

-- name: floors
-- Rule A, the barrier: what was observed below these no longer counts. Swept: for every key; open,
-- held and released: for the keys that they have listed.
SELECT s.partition_id, s.generation, s.state = 'swept', coalesce(s.barrier, s.began), s.snapshot
FROM gapless.snapshot s
WHERE s.partition_id = ANY(%(partition_ids)s) AND s.mapping_version = ANY(%(mapping_versions)s)
  AND s.state IN ('swept', 'open', 'held', 'released')

-- name: waiting_beside
-- Snapshots of a version beside whose complete mark was read, with that mark, which live has stored.
SELECT m.partition, m.generation, m."offset", m.partition_id, m.body
FROM gapless.snapshot s JOIN gapless.mark m ON m.partition_id = s.partition_id
  AND m.kind = 'snapshot_complete' AND m.scope = s.snapshot AND m.generation = s.generation
WHERE s.partition_id = ANY(%(partition_ids)s) AND s.mapping_version = %(beside)s
  AND s.state = 'open' AND s.completed IS NOT NULL AND m."offset" <= s.completed
ORDER BY m.partition, m.generation, m."offset"

-- name: swept_live
-- Whether the live version has swept this snapshot: what was allowed there is allowed beside it.
SELECT EXISTS (SELECT FROM gapless.snapshot s
  JOIN gapless.mapping_version live ON live.id = s.mapping_version AND live.state = 'live'
  JOIN gapless.mapping_version own ON own.id = %(beside)s AND own.mapping = live.mapping
  WHERE s.partition_id = %(partition_id)s AND s.snapshot = %(snapshot)s AND s.state = 'swept')
