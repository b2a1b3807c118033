"""A small perceptron on a table that lies on the device: does so little work gain from a GPU?"""

from models import tabular


def test_tabular(race):
    race(tabular.workload())
