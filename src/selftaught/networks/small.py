"""A small convolutional network to train from scratch on a CPU, used by the demo."""

from itertools import pairwise

from torch import Tensor, nn


class SmallNetwork(nn.Module):
    """Images n×3×H×W to a feature map n×256×H/16×W/16 (rounded up); 15 million multiplications at 64×64."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise((3, 32, 64, 128, 256)):
            convolution = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features
