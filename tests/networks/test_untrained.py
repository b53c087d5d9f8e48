import pytest

from selftaught.networks import Preprocessing, suited_pooling, suited_size


@pytest.mark.parametrize(
    ("inputs", "size"),
    [
        (Preprocessing(size=224), 288),
        (Preprocessing(size=240), 309),
        (Preprocessing(size=224, fixed_size=True), 224),
        (Preprocessing(size=224, multiple=14), 224),
    ],
)
def test_a_network_is_used_at_a_larger_size_if_it_can_be(inputs: Preprocessing, size: int) -> None:
    assert suited_size(inputs) == size
    assert suited_size(inputs, scale=1) == inputs.size


def test_the_pooling_depends_on_the_network() -> None:
    assert suited_pooling("tf_efficientnet_lite4")[0] == "gem"
    assert suited_pooling("resnet50")[0] == "avg+max"
