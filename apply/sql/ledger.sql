-- Outcomes of pages and evidence of records.

-- name: stage_ledger
-- A replay may meet pages that the live pipeline has judged under the same version: those stay.
CREATE TEMPORARY TABLE stage_page_ledger
  (LIKE gapless.page_ledger INCLUDING DEFAULTS) ON COMMIT DELETE ROWS

-- name: keep_ledger
INSERT INTO gapless.page_ledger SELECT * FROM stage_page_ledger ON CONFLICT DO NOTHING

-- name: stage_exception
-- The same for their exceptions.
CREATE TEMPORARY TABLE stage_exception
  (LIKE gapless.exception INCLUDING DEFAULTS) ON COMMIT DELETE ROWS

-- name: keep_exception
INSERT INTO gapless.exception SELECT s.* FROM stage_exception s
WHERE NOT EXISTS (SELECT FROM gapless.page_ledger l WHERE
  (l.mapping_version, l.partition, l.generation, l."offset")
  = (s.mapping_version, s.partition, s.generation, s."offset"))
ON CONFLICT DO NOTHING

-- name: pages_held
-- What the ledger holds of ranges of pages: log records (parts), records, and open exceptions. Of a
-- page that an erasure rewrote, only the newest copy counts.
SELECT w.n, count(*) FILTER (WHERE l.first), coalesce(sum(l.records) FILTER (WHERE l.first), 0)::bigint,
  coalesce(sum(l.errors), 0)::bigint
FROM unnest(%(n)s::int[], %(partition_ids)s::int[], %(passes)s::text[], %(firsts)s::int[], %(lasts)s::int[])
  AS w (n, partition_id, pass, first_page, last_page)
JOIN LATERAL (
  SELECT records, errors, row_number() OVER (PARTITION BY page, part ORDER BY mapping_version) = 1 AS first
  FROM (
    SELECT DISTINCT ON (page, part, mapping_version) page, part, mapping_version, records,
      counts[4] + counts[5] AS errors
    FROM gapless.page_ledger
    WHERE partition_id = w.partition_id AND pass = w.pass AND page BETWEEN w.first_page AND w.last_page
    ORDER BY page, part, mapping_version, generation DESC, "offset" DESC
  ) newest
) l ON true
GROUP BY w.n

-- name: set_outcome
-- One record's outcome changed: its byte and the counts, which still sum to the records. `index` counts within the
-- whole page, so the records of the parts before its own are taken off.
UPDATE gapless.page_ledger l SET
  outcomes = set_byte(l.outcomes, w.at, %(outcome)s),
  counts[get_byte(l.outcomes, w.at)] = l.counts[get_byte(l.outcomes, w.at)] - 1,
  counts[%(outcome)s] = l.counts[%(outcome)s] + 1
FROM (SELECT o.partition, o.generation, o."offset", o.mapping_version, (%(index)s - CASE WHEN o.part = 1 THEN 0 ELSE
    coalesce((SELECT sum(b.records) FROM (
      SELECT DISTINCT ON (part) records FROM gapless.page_ledger
      WHERE partition_id = o.partition_id AND pass = o.pass AND page = o.page AND part < o.part
      ORDER BY part, generation DESC, "offset" DESC) b), 0) END)::int AS at
  FROM gapless.page_ledger o
  WHERE o.mapping_version = %(mapping_version)s AND o.partition = %(partition)s
    AND o.generation = %(generation)s AND o."offset" = %(offset)s) w
WHERE (l.partition, l.generation, l."offset", l.mapping_version)
  = (w.partition, w.generation, w."offset", w.mapping_version)
  AND get_byte(l.outcomes, w.at) <> %(outcome)s
