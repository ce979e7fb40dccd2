"""Random predicates through every way that evaluates them, against an evaluator that shares no code with any."""
