"""Who may do what: principals, their permissions, and what each of them may see of a table."""
