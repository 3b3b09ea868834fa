"""Where a model's files come from. Question: which directory holds the model that the user names?

Reads names (directories, hub ids, GGUF files, packages, adapters); writes the user's cache, each folder whole or not.
"""
