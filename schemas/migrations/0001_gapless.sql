-- The schema of one deployment. C below stands for partition, generation, "offset": where a record lies in the log.
CREATE SCHEMA IF NOT EXISTS gapless;

CREATE TABLE gapless.schema_migration (
  version    int PRIMARY KEY,
  name       text NOT NULL,
  sha256     text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
);

-- Rises for a partition when an operator accepts that its topic was re-created or cut.
CREATE TABLE gapless.log_generation (
  partition    int NOT NULL,
  generation   int2 NOT NULL,
  topic_id     text NOT NULL,
  first_offset bigint NOT NULL DEFAULT 0,
  accepted_by  text,
  accepted_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (partition, generation)
);

-- The applied offset, with the claim that fences every batch. pipeline is 'live' or 'replay:MAPPING:VERSION'.
CREATE TABLE gapless.position (
  pipeline             text COLLATE "C" NOT NULL,
  partition            int NOT NULL,
  generation           int2 NOT NULL DEFAULT 0,
  next_offset_to_apply bigint NOT NULL,
  last_offset          bigint,
  last_key             text,
  leader_epoch         int,
  claim                bigint NOT NULL DEFAULT 0,
  owner                text,
  backend_pid          int,
  backend_start        timestamptz,
  mapping_versions     int[] NOT NULL DEFAULT '{}',
  end_offset           bigint,
  checkpointed_at      timestamptz NOT NULL DEFAULT now(),
  halted               jsonb,
  PRIMARY KEY (pipeline, partition)
) WITH (fillfactor = 50);

CREATE TABLE gapless.partition_id (
  id        int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  text      text COLLATE "C" NOT NULL UNIQUE,
  source    text NOT NULL,
  stream    text NOT NULL,
  tenant    text,
  partition int NOT NULL
);

CREATE TABLE gapless.mapping_version (
  id            int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  mapping       text COLLATE "C" NOT NULL,
  version       int NOT NULL,
  hash          text NOT NULL,
  definition    jsonb NOT NULL,
  source        text NOT NULL,
  stream        text NOT NULL,
  table_name    text NOT NULL,
  state         text NOT NULL CHECK (state IN ('live', 'retired')),
  registered_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (mapping, version)
);

-- One row per observation and mapping version: counts per outcome and one byte per record.
CREATE TABLE gapless.page_ledger (
  mapping_version int NOT NULL,
  partition       int NOT NULL,
  generation      int2 NOT NULL,
  "offset"        bigint NOT NULL,
  partition_id    int NOT NULL REFERENCES gapless.partition_id (id),
  plan            text NOT NULL,
  scope           text COLLATE "C" NOT NULL,
  pass            text COLLATE "C" NOT NULL,
  page            int NOT NULL,
  part            int NOT NULL,
  parts           int NOT NULL,
  original_offset bigint NOT NULL,
  records         int NOT NULL,
  counts          int[] NOT NULL,
  outcomes        bytea NOT NULL,
  fetched_at      timestamptz NOT NULL,
  applied_at      timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (partition, generation, "offset", mapping_version)
);
CREATE INDEX page_ledger_pass ON gapless.page_ledger (partition_id, pass, page);

-- What could not be applied: evidence, and what became of it. state: retryable, quarantined, resolved, dismissed.
CREATE TABLE gapless.exception (
  mapping_version int NOT NULL,
  partition       int NOT NULL,
  generation      int2 NOT NULL,
  "offset"        bigint NOT NULL,
  index           int NOT NULL,
  partition_id    int NOT NULL REFERENCES gapless.partition_id (id),
  plan            text NOT NULL,
  scope           text COLLATE "C" NOT NULL,
  source_epoch    int2 NOT NULL DEFAULT 0,
  original_offset bigint NOT NULL,
  key             jsonb,
  state           text NOT NULL CHECK (state IN ('retryable', 'quarantined', 'resolved', 'dismissed')),
  reason          text NOT NULL,
  detail          text NOT NULL,
  raw             bytea,
  attempts        int NOT NULL DEFAULT 0,
  due_at          timestamptz,
  fetched_at      timestamptz NOT NULL,
  as_of           timestamptz,
  run             text,
  created_at      timestamptz NOT NULL DEFAULT now(),
  decided_by      text,
  decided_at      timestamptz,
  decided_note    text,
  PRIMARY KEY (partition, generation, "offset", index, mapping_version)
);
CREATE INDEX exception_due ON gapless.exception (due_at) WHERE state = 'retryable';
CREATE INDEX exception_open ON gapless.exception (mapping_version, reason) WHERE state IN ('retryable', 'quarantined');

-- Marks of the log. state: pending (pages named are missing), done, dropped.
CREATE TABLE gapless.mark (
  partition    int NOT NULL,
  generation   int2 NOT NULL,
  "offset"     bigint NOT NULL,
  partition_id int NOT NULL REFERENCES gapless.partition_id (id),
  kind         text NOT NULL,
  plan         text NOT NULL,
  scope        text COLLATE "C" NOT NULL,
  body         jsonb NOT NULL,
  state        text NOT NULL CHECK (state IN ('pending', 'done', 'dropped')),
  at           timestamptz NOT NULL,
  applied_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (partition, generation, "offset")
);
CREATE INDEX mark_pending ON gapless.mark (partition_id) WHERE state = 'pending';

-- Which intervals were fully searched. state: complete, complete_with_errors, failed, accepted, gap.
CREATE TABLE gapless.coverage (
  partition_id int NOT NULL REFERENCES gapless.partition_id (id),
  plan         text NOT NULL,
  start_at     timestamptz NOT NULL,
  end_at       timestamptz NOT NULL,
  state        text NOT NULL CHECK (state IN ('complete', 'complete_with_errors', 'failed', 'gap')),
  run          text,
  reason       text,
  pages        bigint NOT NULL,
  records      bigint NOT NULL,
  errors       bigint NOT NULL DEFAULT 0,
  completed_at timestamptz NOT NULL,
  PRIMARY KEY (partition_id, plan, start_at)
);

-- Something is lost, or may be: never deleted, accepted by name.
CREATE TABLE gapless.gap (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  partition    int NOT NULL,
  generation   int2 NOT NULL DEFAULT 0,
  "offset"     bigint,
  partition_id int REFERENCES gapless.partition_id (id),
  from_text    text,
  to_text      text,
  cause        text NOT NULL,
  found_at     timestamptz NOT NULL DEFAULT now(),
  accepted_by  text,
  accepted_at  timestamptz,
  UNIQUE (partition, generation, "offset", cause)
);

-- Snapshots per partition id. state: open, held (sweep waits for an operator), released (its owner may sweep now),
-- swept, kept (nothing deleted), dropped. barrier: what was observed below it no longer counts (set by the sweep).
CREATE TABLE gapless.snapshot (
  mapping_version int NOT NULL DEFAULT 0,
  partition_id    int NOT NULL REFERENCES gapless.partition_id (id),
  snapshot        text COLLATE "C" NOT NULL,
  generation      int2 NOT NULL,
  began           bigint NOT NULL,
  completed       bigint,
  barrier         bigint,
  stable          boolean NOT NULL DEFAULT false,
  state           text NOT NULL CHECK (state IN ('open', 'held', 'released', 'swept', 'kept', 'dropped')),
  listed          bigint NOT NULL DEFAULT 0,
  swept           bigint NOT NULL DEFAULT 0,
  unreadable      bigint NOT NULL DEFAULT 0,
  note            text,
  at              timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (partition_id, snapshot, mapping_version)
);

-- Events to publish, in order per key. state: unsent, sent, dead, skipped.
CREATE TABLE gapless.outbox (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  mapping         text COLLATE "C" NOT NULL,
  key             text COLLATE "C" NOT NULL,
  sequence        bigint NOT NULL,
  effect          text NOT NULL CHECK (effect IN ('created', 'changed', 'deleted')),
  type            text NOT NULL,
  topic           text NOT NULL,
  idempotency_key text NOT NULL UNIQUE,
  payload         jsonb NOT NULL,
  state           text NOT NULL DEFAULT 'unsent' CHECK (state IN ('unsent', 'sent', 'dead', 'skipped')),
  attempts        int NOT NULL DEFAULT 0,
  due_at          timestamptz NOT NULL DEFAULT now(),
  created_at      timestamptz NOT NULL DEFAULT now(),
  sent_at         timestamptz
);
CREATE INDEX outbox_unsent ON gapless.outbox (mapping, key, id) WHERE state IN ('unsent', 'dead');

CREATE TABLE gapless.operator_action (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at     timestamptz NOT NULL DEFAULT now(),
  by     text NOT NULL,
  action text NOT NULL,
  about  jsonb NOT NULL,
  note   text
);
