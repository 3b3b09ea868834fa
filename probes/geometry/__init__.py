"""How directions and subspaces of contrasts relate. Question: do two contrasts share a direction?
Takes activations of two contrasts; reads and writes no file.
Returns cosines, principal angles, transfer and cross-erasure beside permuted labels."""
