"""Slugs: titles as parts of addresses."""


def slugify(title: str) -> str:
    return title.lower().replace(" ", "-")
