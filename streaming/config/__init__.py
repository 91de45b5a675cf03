"""Settings, and what they are made of: values, spellings, certificates, tokens, principals, the way to the brokers."""
