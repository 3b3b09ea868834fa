"""Do the dials, and their certificate, hold where requests are perturbed?

Reads a finished run with its dials, and configs/pressure.yaml; writes pressure.json and its figure.
"""
