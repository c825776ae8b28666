"""A package, so that tests can say ``from tests.profiles import examples``."""
