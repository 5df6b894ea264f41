"""What belongs to the organization as a whole: its audit log, named secrets and credentials of registries."""
