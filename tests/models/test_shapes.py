"""Parameter counts and shapes, counted by hand."""

import torch
from torch import nn

from models.cnn import CNN
from models.inception_a import InceptionA, InceptionNet
from models.resnet50_transfer import ResNet50Transfer
from models.tabular import TabularMLP


def count(parameters):
    return sum(parameter.numel() for parameter in parameters)


def test_the_cnn_has_8490_parameters_and_ten_scores():
    # conv 1→10 of 5×5: 260; conv 10→20 of 5×5: 5,020; linear 320→10: 3,210
    assert count(CNN().parameters()) == 260 + 5020 + 3210 == 8490
    assert CNN()(torch.zeros(3, 1, 28, 28)).shape == (3, 10)


def test_the_branches_of_inception_a_give_88_channels_of_the_same_size():
    assert InceptionA(10)(torch.zeros(2, 10, 12, 12)).shape == (2, 16 + 24 + 24 + 24, 12, 12)


def test_the_inception_network_ends_in_1408_inputs():
    # 28 → conv 24 → pool 12 → conv 8 → pool 4: 88 × 4 × 4
    net = InceptionNet()
    assert net.fc.in_features == 88 * 4 * 4 == 1408
    assert (net.conv2.in_channels, net.conv2.out_channels) == (88, 20)
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_of_the_resnet_only_the_4098_of_the_head_train():
    model = ResNet50Transfer()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert count(trainable) == 2048 * 2 + 2 == 4098
    # torchvision's documented 25,557,032 with the 1000-class layer of 2,049,000 replaced
    assert count(model.parameters()) == 25_557_032 - 2_049_000 + 4098


def test_the_frozen_backbone_stays_in_eval_while_the_model_trains():
    model = ResNet50Transfer().train()
    assert model.training
    assert model.head.training
    assert not any(module.training for module in model.backbone.modules())


def test_a_state_of_1000_classes_loads_before_the_head_is_replaced():
    from torchvision.models import resnet50

    torch.manual_seed(1)
    state = resnet50().state_dict()
    model = ResNet50Transfer(state, "pretrained made up")
    assert torch.equal(model.backbone.conv1.weight, state["conv1.weight"])
    assert model.head.out_features == 2


def test_the_perceptron_is_30_64_64_2():
    # 30×64+64, 64×64+64, 64×2+2
    assert count(TabularMLP().parameters()) == 1984 + 4160 + 130
    assert [layer.out_features for layer in TabularMLP().layers if isinstance(layer, nn.Linear)] == [64, 64, 2]
