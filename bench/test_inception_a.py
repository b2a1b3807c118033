"""The InceptionA network on MNIST: how long does the training take on each device?"""

from models import inception_a


def test_inception_a(race, race_data):
    race(inception_a.workload(race_data))
