"""Table state, catalog state, and the transactions that change them: pure values and pure functions.

``resolve`` maps a proposal onto the state as it is now, or refuses it; ``apply`` folds the resolved transaction into a
new state. Both are repeated after every lost race, so a writer with an old snapshot is never refused for its age.
"""
