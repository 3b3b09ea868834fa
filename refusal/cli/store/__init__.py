"""`refusal store info`, `verify` and `export`: what a store holds, whether it is intact, one flat file of it.
Reads activations.h5 of a run directory.
Writes a flat HDF5 file, for `export` alone."""
