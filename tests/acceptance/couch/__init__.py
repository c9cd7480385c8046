"""A CouchDB-protocol server, and the definition that reads it."""
