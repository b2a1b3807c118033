"""The CNN on MNIST: how long does the training take on each device?"""

from models import cnn


def test_cnn(race, race_data):
    race(cnn.workload(race_data))
