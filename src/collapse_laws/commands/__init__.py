"""One module a command: argument parsing and printing only; the work is done by the modules it calls."""
