"""Settings and their parts: values, names in client libraries, certificates, tokens, principals, access to the
brokers."""
