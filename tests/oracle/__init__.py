"""The independent judge: reads the provider's ledger, the raw log and plain SQL, and no product code.

It knows the promises, the Avro files and the table names, and nothing of how the product works.
"""
