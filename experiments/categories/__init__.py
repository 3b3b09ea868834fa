"""Do categories of refusal (or of not-knowing) each have a mechanism of their own, or one knob with many labels?

Reads activations and completions; writes outcomes, stages/category_effects.json and stages/categories.json.
"""
