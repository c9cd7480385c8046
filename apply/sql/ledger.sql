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
-- One record's outcome changed (a retry): its byte and the counts, which still sum to the records.
UPDATE gapless.page_ledger SET
  outcomes = set_byte(outcomes, %(at)s, %(outcome)s),
  counts[get_byte(outcomes, %(at)s)] = counts[get_byte(outcomes, %(at)s)] - 1,
  counts[%(outcome)s] = counts[%(outcome)s] + 1
WHERE mapping_version = %(mapping_version)s AND partition = %(partition)s
  AND generation = %(generation)s AND "offset" = %(offset)s
  AND get_byte(outcomes, %(at)s) <> %(outcome)s
