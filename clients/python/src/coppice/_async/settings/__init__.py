"""What belongs to the organization as a whole: its audit log, budgets, named secrets and credentials of registries."""
