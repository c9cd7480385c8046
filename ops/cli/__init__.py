"""The command line: one verb per module, named as the module.

The function of that name is the command; a module that needs more says it in `register(app)`.

Clients of Kafka, Postgres and the stages are imported inside functions, so that help is quick.
"""
