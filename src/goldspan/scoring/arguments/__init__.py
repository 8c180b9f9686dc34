"""How far what was called agrees with what was expected: values, arguments, results."""
