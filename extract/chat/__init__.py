"""Chat templates and token roles. Question: where do the words of a conversation stand among its tokens?
Reads prompts and a tokenizer; writes nothing.
Returns `Rendered` prompts: token ids with the role of each."""
