"""Records of the topics: how requests and outputs are written and read, and how requests are signed."""
