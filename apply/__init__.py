"""Stage 2: reads the log and puts its records into Postgres, with an outcome for each."""
