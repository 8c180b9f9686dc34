"""Cases: rows of what was called and what was expected, from files or from code, judged without a trace."""
