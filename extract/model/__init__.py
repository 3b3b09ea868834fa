"""One chat model. Question: how is any open-weight model read, edited and decoded alike?
Reads weights from a directory or the hub; writes nothing.
Returns captured streams and responses; interventions live only while a context is open."""
