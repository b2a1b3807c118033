"""ResNet50 transfer on Cats vs Dogs: how long does the training take on each device?"""

from models import resnet50_transfer


def test_resnet50_transfer(race, race_data):
    race(resnet50_transfer.workload(race_data))
