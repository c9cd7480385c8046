-- Events may be posted to a receiver, carry headers of their own, and say why they are not sent yet.

-- topic NULL: posted to where the mapping's definition says. headers: text by name, added to the
-- message in Kafka. value: sent as it is in place of payload. error: why it is not sent, without
-- content of the event and without secrets.
ALTER TABLE gapless.outbox
  ALTER COLUMN topic DROP NOT NULL,
  ADD COLUMN headers jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(headers) = 'object'),
  ADD COLUMN value   bytea,
  ADD COLUMN error   text,
  DROP CONSTRAINT outbox_effect_check,
  ADD CONSTRAINT outbox_effect_check CHECK (effect IN ('created', 'changed', 'deleted', 'quarantined'));

-- One for each way out, so that what waits for a receiver is not in the way of what goes to Kafka.
DROP INDEX gapless.outbox_unsent;
CREATE INDEX outbox_unsent_topic ON gapless.outbox (mapping, key, id)
  WHERE state IN ('unsent', 'dead') AND topic IS NOT NULL;
CREATE INDEX outbox_unsent_post ON gapless.outbox (mapping, key, id)
  WHERE state IN ('unsent', 'dead') AND topic IS NULL;
