"""The activation store. Question: how are activations saved so that a killed run loses at most one shard?
Reads and writes `activations.h5` and its shards.
Returns ordinary arrays; verifies every byte on request."""
