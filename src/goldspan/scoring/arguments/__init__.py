"""Compares called values with expected ones.

`agreement`: compares arguments and results, and returns how far they agree.
`equality`: decides whether two plain values are equal.
`matcher_evaluation`: decides whether a value is accepted by a matcher.
`matcher_hints`: names the matcher that would accept a value that differs.
`multisets`: matches the items of lists whose order does not matter.
`schema_coercion`: converts values to the types that a tool's JSON schema declares.
"""
