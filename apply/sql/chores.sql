-- What is looked for about once a second; looks only, without locks.

-- name: anything_due
SELECT EXISTS (SELECT FROM gapless.exception WHERE state = 'retryable' AND due_at <= %(now)s
    AND partition = ANY(%(partitions)s) AND NOT EXISTS (SELECT FROM gapless.mapping_version v
      WHERE v.id = mapping_version AND v.state IN ('shadow', 'kept'))),
  EXISTS (SELECT FROM gapless.snapshot s JOIN gapless.partition_id i ON i.id = s.partition_id
    WHERE s.state = 'released' AND i.partition = ANY(%(partitions)s)
      AND NOT EXISTS (SELECT FROM gapless.mapping_version v
        WHERE v.id = s.mapping_version AND v.state IN ('shadow', 'kept'))),
  EXISTS (SELECT FROM gapless.position WHERE pipeline = 'live' AND partition = ANY(%(partitions)s)
    AND halted ->> 'cause' = 'record_faults')

-- name: exceptions
SELECT state, count(*) FROM gapless.exception
WHERE state IN ('retryable', 'quarantined') AND partition = ANY(%(partitions)s) GROUP BY state
