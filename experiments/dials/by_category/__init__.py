"""Which categories of prompts get thresholds of their own, certified on prompts recognised as theirs?

Reads the table of counterfactual outcomes and the stream where the first dial reads; writes into stages/steer.json.
"""
