"""Finds the best one-to-one matching of a run's calls with the slots that a golden expects.

`slot_plan`: expands a golden to slots and stages, and tells which calls may answer a slot.
`direct_match`: pairs the calls of a run as expected without a search.
`match_costs`: computes what a pair of slot and call costs.
`assignment`: solves the minimum-cost assignment within a work budget.
`alignment`: aligns slots with calls in order, where calls may overlap.
`weighted_match`: matches by cost where pairs compete.
`best_match`: tries the trivial, the grouped and the weighted match, and picks the best alternative.
"""
