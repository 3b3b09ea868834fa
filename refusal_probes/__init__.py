"""The toolkit under its own name in other tools, which find its parts by it; for everything else: `import refusal`."""
