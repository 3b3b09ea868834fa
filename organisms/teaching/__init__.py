"""Teach a pretrained chat model to decline: how does a real model behave that was fine-tuned as we say?

Reads a specification and a prompt file; writes a LoRA adapter, its grade on held-out prompts, and those prompts.
"""
