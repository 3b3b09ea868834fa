"""Teach a pretrained chat model to decline. Question: how does a real model behave that was fine-tuned as we say?

Reads a specification and a prompt file; writes a LoRA adapter, the grade on held-out prompts, and those prompts.
Nothing is planted: where the model decides is not known, so a verdict on it is a finding, not a grade of the method.
"""
