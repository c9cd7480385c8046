-- What was in hand when a process of apply ended. unclean: how often in a row the position was taken from
-- an owner that never gave it back and had not moved it; trial: what is tried carefully since then.
ALTER TABLE gapless.position
  ADD COLUMN unclean           int NOT NULL DEFAULT 0,
  ADD COLUMN claimed_at_offset bigint,
  ADD COLUMN trial             jsonb;
