"""Settings and what they are made of: values, spellings, certificates, tokens, principals, and the way to the brokers."""
