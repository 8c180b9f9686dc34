"""Golden lookup: finds the golden of a run by declaration, id, conditions, input or similar input.

``golden_lookup``: `Goldens` and the order of the lookup steps; the golden that the run itself declares.
``fuzzy_match``: finds the golden with the most similar input; numbers and negations must be equal.
``similarity_index``: exact nearest-text search over many texts, filtered by length and trigram counts.
"""
