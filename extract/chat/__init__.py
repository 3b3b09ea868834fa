"""Chat templates and token roles. Question: which tokens hold the words of a conversation?
Reads prompts and a tokenizer; writes nothing.
Returns `Rendered` prompts: token ids with the role of each."""
