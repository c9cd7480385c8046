-- Quarantine made operable: one open row per record, its history, copies, and what each mapping version has tried.

-- fingerprint: which record this is (its key, or its bytes where the key cannot be read); content: digest of its bytes.
-- sightings: how many observations this row stands for; 0: another row stands for it. tried_version: the mapping
-- version of the last try. state `repeated`: an open row of a later observation stands for this one.
ALTER TABLE gapless.exception
  ADD COLUMN fingerprint   bytea,
  ADD COLUMN content       bytea,
  ADD COLUMN sightings     int NOT NULL DEFAULT 1,
  ADD COLUMN first_seen_at timestamptz NOT NULL DEFAULT now(),
  ADD COLUMN last_seen_at  timestamptz NOT NULL DEFAULT now(),
  ADD COLUMN tried_version int,
  ADD COLUMN copied_at     timestamptz,
  DROP CONSTRAINT exception_state_check,
  ADD CONSTRAINT exception_state_check
    CHECK (state IN ('retryable', 'quarantined', 'repeated', 'resolved', 'dismissed'));
UPDATE gapless.exception SET first_seen_at = created_at, last_seen_at = created_at;
CREATE INDEX exception_same ON gapless.exception (partition_id, mapping_version, fingerprint)
  WHERE state IN ('retryable', 'quarantined', 'repeated', 'dismissed');
CREATE INDEX exception_decided ON gapless.exception (decided_at) WHERE state IN ('resolved', 'dismissed');

-- Every try and every decision on an exception, in order; goes when its exception goes.
CREATE TABLE gapless.exception_history (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  mapping_version int NOT NULL,
  partition       int NOT NULL,
  generation      int2 NOT NULL,
  "offset"        bigint NOT NULL,
  index           int NOT NULL,
  at              timestamptz NOT NULL,
  event           text NOT NULL,
  state           text NOT NULL,
  reason          text NOT NULL,
  detail          text NOT NULL,
  by              text,
  note            text
);
CREATE INDEX exception_history_of ON gapless.exception_history (partition, "offset", index);

-- Copies for readers of the quarantine topic go through the outbox, too.
ALTER TABLE gapless.outbox
  DROP CONSTRAINT outbox_effect_check,
  ADD CONSTRAINT outbox_effect_check CHECK (effect IN ('created', 'changed', 'deleted', 'quarantined'));

-- Whether a page was counted by the mark of its interval, for exceptions that end well.
CREATE INDEX mark_scope ON gapless.mark (partition_id, scope);
