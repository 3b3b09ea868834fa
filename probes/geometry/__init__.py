"""Geometry of contrast directions and subspaces. Question: do two contrasts share a direction?
Takes activations of two contrasts; reads and writes no file.
Returns cosines, principal angles, transfer and cross-erasure, each with a permutation null."""
