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

-- name: held_by
-- The same of one range, as one mapping version has seen it.
SELECT count(*), coalesce(sum(records), 0)::bigint FROM (
  SELECT DISTINCT ON (page, part) records FROM gapless.page_ledger
  WHERE partition_id = %(partition_id)s AND pass = %(pass)s AND page BETWEEN %(first)s AND %(last)s
    AND mapping_version = %(mapping_version)s
  ORDER BY page, part, generation DESC, "offset" DESC
) newest

-- name: outcomes_of
-- Ledger rows some of whose records get another outcome, each with the index of its first record in the whole page.
SELECT l.mapping_version, l.partition, l.generation, l."offset", l.outcomes, CASE WHEN l.part = 1 THEN 0 ELSE
  coalesce((SELECT sum(b.records) FROM (
    SELECT DISTINCT ON (part) records FROM gapless.page_ledger
    WHERE partition_id = l.partition_id AND pass = l.pass AND page = l.page AND part < l.part
    ORDER BY part, generation DESC, "offset" DESC) b), 0)::int END
FROM gapless.page_ledger l
JOIN unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[], %(offsets)s::bigint[])
  AS w (mapping_version, partition, generation, "offset") USING (mapping_version, partition, generation, "offset")
ORDER BY l.partition, l.generation, l."offset", l.mapping_version FOR UPDATE OF l

-- name: set_outcomes
-- One write for all records of a row: each would leave a whole row behind.
UPDATE gapless.page_ledger SET outcomes = %(outcomes)s, counts = %(counts)s
WHERE mapping_version = %(mapping_version)s AND partition = %(partition)s
  AND generation = %(generation)s AND "offset" = %(offset)s
