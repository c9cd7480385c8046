"""The command line: one verb per module. A module that has `register(app)` adds its verb.

Clients of Kafka, Postgres and the stages are imported inside functions, so that help is quick.
"""
