"""How well does a read that was trained on one set of prompts read another?

Reads prompts of several sets and their activations; writes transfer.json. Nothing is generated.
"""
