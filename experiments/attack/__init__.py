"""How many steps of a suffix attack switch a dial off, and what does training on attacks buy?

Reads a run with dials and its model; writes attack.json: rates and losses, no suffix, token or answer.
"""
