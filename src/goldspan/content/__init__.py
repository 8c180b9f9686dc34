"""Decodes the text of arguments, results and messages to plain values, for all conventions.

`literals`: parses text that holds JSON or what Python's `repr` writes.
`envelopes`: unwraps arguments and results from what frameworks put around them.
`tools`: compares tool names, and parses the definitions of tools offered to a model.
`flat_attributes`: rebuilds lists from numbered attributes.
`parts`: defines messages, requested calls and tool results, and parses the parts of a message.
`standard_messages`: decodes messages in the JSON of OpenTelemetry's GenAI conventions in one pass.
`messages`: decodes model messages in every notation, and caches histories that turns repeat.
`values`: decodes arguments, results, and the text of a request's input and output.
"""
