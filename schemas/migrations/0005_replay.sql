-- Tables of mapping versions beside the live ones: one that a replay fills (shadow), or the one that was
-- replaced and can come back (kept). A mapping has at most one of them; both stand in gapless_beside under the
-- names of the live tables, so that a swap only moves tables between schemas. gapless_hop is empty but within
-- the transaction of a swap.
CREATE SCHEMA IF NOT EXISTS gapless_beside;
CREATE SCHEMA IF NOT EXISTS gapless_hop;

ALTER TABLE gapless.mapping_version DROP CONSTRAINT mapping_version_state_check;
ALTER TABLE gapless.mapping_version ADD CONSTRAINT mapping_version_state_check
  CHECK (state IN ('live', 'retired', 'shadow', 'kept'));

-- Where a replay began to read: with next_offset_to_apply and end_offset, how far it is.
ALTER TABLE gapless.position ADD COLUMN start_offset bigint;
-- pipeline is 'live', 'replay:MAPPING:VERSION' (in place, everything), 'replay:MAPPING:VERSION:SCOPE' (a part)
-- or 'beside:MAPPING:VERSION' (a table beside the live one).
COMMENT ON COLUMN gapless.position.pipeline IS 'live, replay:MAPPING:VERSION[:SCOPE] or beside:MAPPING:VERSION';
