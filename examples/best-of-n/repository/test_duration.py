import unittest

from duration import parse


class ParseTest(unittest.TestCase):
    def test_one_unit(self) -> None:
        self.assertEqual(parse("10m"), 600)

    def test_several_units(self) -> None:
        self.assertEqual(parse("1h30m"), 5400)
        self.assertEqual(parse("2h0m5s"), 7205)

    def test_an_unknown_unit_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            parse("5x")

    def test_an_empty_text_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            parse("")
