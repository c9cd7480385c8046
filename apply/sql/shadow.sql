-- Tables beside the live ones: what is carried over to them, what refuses a swap, and the swap itself.

-- name: lock
-- One replay beside live at a time per mapping, for as long as the session lasts. It waits as long as
-- the lock's time-out: the server notices a moment late that the one before has ended.
SELECT pg_advisory_lock(hashtextextended('gapless beside ' || %(mapping)s, 0))

-- name: register
-- A version that only the table beside has; live goes on with the one before.
INSERT INTO gapless.mapping_version
  (mapping, version, hash, definition, source, stream, table_name, state)
VALUES (%(mapping)s, %(version)s, %(hash)s, %(definition)s, %(source)s, %(stream)s, %(table)s, 'shadow')
RETURNING id

-- name: columns_of_versions
-- Every column that a version of this mapping ever had: those belong to it, and may go.
SELECT DISTINCT jsonb_object_keys(definition->'columns') FROM gapless.mapping_version
WHERE mapping = %(mapping)s

-- name: tables
-- The tables of these versions: the mapping's own, and those of its children.
SELECT name FROM (
  SELECT table_name AS name, 0 AS place FROM gapless.mapping_version WHERE id = ANY(%(versions)s)
  UNION
  SELECT jsonb_path_query(definition, '$.children.*.table') #>> '{}', 1
  FROM gapless.mapping_version WHERE id = ANY(%(versions)s)
) t WHERE name IS NOT NULL ORDER BY place, name

-- name: table
SELECT c.oid::int8, pg_get_userbyid(c.relowner), c.relrowsecurity, coalesce(c.reloptions, '{}'),
  obj_description(c.oid, 'pg_class')
FROM pg_class c WHERE c.oid = to_regclass(%(table)s)

-- name: columns
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attgenerated::text,
  pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum

-- name: constraints
-- All but the primary key, which the new table has by its mapping, and not-null, which is no row fault.
SELECT conname::text, pg_get_constraintdef(oid)
FROM pg_constraint WHERE conrelid = %(oid)s AND contype IN ('c', 'u', 'f', 'x') ORDER BY conname

-- name: indexes
-- Those that no constraint makes by itself.
SELECT c.relname::text, pg_get_indexdef(i.indexrelid), i.indisunique
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %(oid)s AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid
  AND k.contype IN ('p', 'u', 'x'))
ORDER BY c.relname

-- name: grants
-- Privileges of others than the owner, on the table and on columns.
SELECT NULL, g.privilege_type, coalesce(r.rolname::text, 'PUBLIC'), g.is_grantable
FROM pg_class c CROSS JOIN aclexplode(c.relacl) g LEFT JOIN pg_roles r ON r.oid = g.grantee
WHERE c.oid = %(oid)s AND g.grantee <> c.relowner
UNION ALL
SELECT a.attname::text, g.privilege_type, coalesce(r.rolname::text, 'PUBLIC'), g.is_grantable
FROM pg_attribute a CROSS JOIN aclexplode(a.attacl) g LEFT JOIN pg_roles r ON r.oid = g.grantee
WHERE a.attrelid = %(oid)s AND NOT a.attisdropped AND a.attacl IS NOT NULL

-- name: obstacles
-- What a swap would leave with the old table, or lose.
SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = %(oid)s AND NOT tgisinternal
UNION ALL SELECT 'policy ' || polname FROM pg_policy WHERE polrelid = %(oid)s
UNION ALL SELECT 'rule ' || rulename FROM pg_rewrite WHERE ev_class = %(oid)s
UNION ALL SELECT 'publication ' || p.pubname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
  WHERE r.prrelid = %(oid)s
UNION ALL SELECT 'foreign key ' || conname || ' of ' || conrelid::regclass FROM pg_constraint
  WHERE confrelid = %(oid)s AND contype = 'f'
UNION ALL SELECT 'inheritance of ' || inhrelid::regclass FROM pg_inherits
  WHERE inhparent = %(oid)s OR inhrelid = %(oid)s
UNION ALL SELECT 'materialized view ' || c.oid::regclass FROM pg_depend d
  JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
  JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'm'
  WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s
UNION ALL SELECT 'function ' || d.objid::regprocedure FROM pg_depend d
  WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s
ORDER BY 1

-- name: views
-- Views that read the table, with what they say. To ask with an empty search_path: then every name in
-- it is written with its schema.
SELECT DISTINCT c.oid::regclass::text, pg_get_viewdef(c.oid), coalesce(c.reloptions, '{}')
FROM pg_depend d JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'v'
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s ORDER BY 1

-- name: hold_live
-- Live, and what replays in place, wait for the swap from here on: their batches begin with these rows.
SELECT pipeline, partition, generation, next_offset_to_apply FROM gapless.position
WHERE pipeline = 'live' OR starts_with(pipeline, %(in_place)s)
ORDER BY pipeline, partition FOR UPDATE

-- name: hold_own
SELECT partition, generation, next_offset_to_apply, claim FROM gapless.position
WHERE pipeline = %(pipeline)s ORDER BY partition FOR UPDATE

-- name: positions
SELECT partition, generation, next_offset_to_apply FROM gapless.position WHERE pipeline = %(pipeline)s
ORDER BY partition

-- name: begin
-- Where a table beside begins; one that has begun only learns how far live is by now.
INSERT INTO gapless.position
  (pipeline, partition, generation, next_offset_to_apply, start_offset, end_offset)
VALUES (%(pipeline)s, %(partition)s, %(generation)s, %(start)s, %(start)s, %(end)s)
ON CONFLICT (pipeline, partition) DO UPDATE SET end_offset = EXCLUDED.end_offset
RETURNING partition, generation, next_offset_to_apply, end_offset

-- name: hold_version
-- The version that is live, which nobody may change until the swap is done.
SELECT id FROM gapless.mapping_version WHERE mapping = %(mapping)s AND state = 'live' FOR UPDATE

-- name: states
UPDATE gapless.mapping_version SET state = CASE id WHEN %(new)s THEN 'live' ELSE 'kept' END
WHERE id IN (%(new)s, %(old)s)

-- name: forget_positions
DELETE FROM gapless.position WHERE pipeline = ANY(%(pipelines)s)

-- name: keep_positions
-- The replaced table stands exactly where live does now: from here it can be caught up again. The new
-- one counts as replayed that far.
INSERT INTO gapless.position
  (pipeline, partition, generation, next_offset_to_apply, start_offset, end_offset)
SELECT w.pipeline, p.partition, p.generation, p.next_offset_to_apply, p.next_offset_to_apply,
  p.next_offset_to_apply
FROM gapless.position p CROSS JOIN unnest(%(pipelines)s::text[]) AS w (pipeline)
WHERE p.pipeline = 'live'

-- name: take_claims
-- Whoever applied the old version must ask again who may write, and will hear that it is another one.
UPDATE gapless.position SET claim = claim + 1, owner = NULL, backend_pid = NULL, backend_start = NULL
WHERE pipeline = 'live' OR starts_with(pipeline, %(in_place)s)

-- name: newly_quarantined
-- Records, however often each was seen.
SELECT n.reason, count(DISTINCT (n.partition_id, coalesce(encode(n.fingerprint, 'hex'),
  concat_ws('/', n.partition, n.generation, n."offset", n.index)))) AS records
FROM gapless.exception n
WHERE n.mapping_version = %(new)s AND n.state IN ('retryable', 'quarantined', 'repeated') AND NOT EXISTS (
  SELECT FROM gapless.exception e WHERE e.mapping_version = %(old)s
    AND (e.partition, e.generation, e."offset", e.index) = (n.partition, n.generation, n."offset", n.index)
    AND e.state IN ('retryable', 'quarantined', 'repeated'))
GROUP BY n.reason ORDER BY records DESC

-- name: action
INSERT INTO gapless.operator_action (by, action, about) VALUES (%(by)s, %(action)s, %(about)s)

-- name: forget_ledger
DELETE FROM gapless.page_ledger WHERE mapping_version = %(version)s

-- name: forget_exceptions
DELETE FROM gapless.exception WHERE mapping_version = %(version)s

-- name: forget_snapshots
DELETE FROM gapless.snapshot WHERE mapping_version = %(version)s

-- name: forget_replays
-- What replays in place of a version, and swaps to it, have noted: it has no table any more.
DELETE FROM gapless.position WHERE pipeline = %(name)s OR starts_with(pipeline, %(name)s || ':')

-- name: unspoken
-- Open exceptions of a version that is given up, of records that the live one has judged, too: and whether
-- coverage has one error less now. What a version has refused beside live was never counted there.
SELECT e.mapping_version, e.partition, e.generation, e."offset", e.index, e.scope,
  n.mapping_version IS NULL AND (NOT %(newer)s OR EXISTS (SELECT FROM gapless.position p
    WHERE p.pipeline = %(name)s AND (p.partition, p.generation) = (e.partition, e.generation)
      AND p.end_offset <= e."offset"))
FROM gapless.exception e
JOIN gapless.page_ledger l ON (l.partition, l.generation, l."offset") = (e.partition, e.generation, e."offset")
  AND l.mapping_version = %(live)s
LEFT JOIN gapless.exception n ON (n.partition, n.generation, n."offset", n.index)
  = (e.partition, e.generation, e."offset", e.index) AND n.mapping_version = %(live)s
WHERE e.mapping_version = %(version)s AND e.state IN ('retryable', 'quarantined', 'repeated')
ORDER BY e.partition, e.generation, e."offset", e.index LIMIT 500 FOR UPDATE OF e

-- name: forget_version
DELETE FROM gapless.mapping_version WHERE id = %(version)s

-- name: retire
UPDATE gapless.mapping_version SET state = 'retired' WHERE id = %(version)s
