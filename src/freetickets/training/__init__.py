"""One trainer that executes any plan, and what it costs."""
