"""The activation store. Question: how do streams get to disk so that a kill loses one shard at most?
Reads and writes `activations.h5` and its shards.
Returns ordinary arrays; checks every byte when asked."""
