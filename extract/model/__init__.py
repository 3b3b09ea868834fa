"""One chat model. Question: how is any open-weight model read, edited and decoded in the same way?
Reads weights from a directory or the hub; writes nothing.
Returns captured streams and responses; interventions are active only while a context is open."""
