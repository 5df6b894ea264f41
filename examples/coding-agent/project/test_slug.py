import unittest

from slug import slugify


class SlugifyTest(unittest.TestCase):
    def test_spaces(self) -> None:
        self.assertEqual(slugify("Hello World"), "hello-world")

    def test_punctuation(self) -> None:
        self.assertEqual(slugify("Rock & Roll!"), "rock-roll")

    def test_accents(self) -> None:
        self.assertEqual(slugify("Crème Brûlée"), "creme-brulee")
