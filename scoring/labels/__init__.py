"""Labels by people. Question: what are the rates when the judge's errors are counted?
Reads labels of completions (JSONL, CSV) and the ledger of judged ones.
Returns corrected rates, the annotators' agreement, and a band of the judge's error where nobody labelled."""
