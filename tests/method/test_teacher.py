"""Step 4: the moving average, number by number."""

import naive
import pytest
import torch
from torch import Tensor, nn

from selftaught.method import MovingAverage, STMLLoss


class Network(nn.Module):
    """A backbone with batch norm and the head g; a student has the head f too."""

    def __init__(self, student: bool) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
        self.g = nn.Linear(5, 4)
        if student:
            self.f = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.g(self.backbone(x))  # type: ignore[no-any-return]


def pair(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Network, Network]:
    """A teacher, and a student whose batch norm has seen three batches."""
    torch.manual_seed(seed)
    teacher, student = Network(student=False).to(dtype).eval(), Network(student=True).to(dtype)
    for _ in range(3):
        student(3 + 2 * torch.randn(16, 6, dtype=dtype))
    return teacher, student


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
@pytest.mark.parametrize("momentum", [0.3, 0.9, 0.999])
def test_update_equals_the_formula_for_parameters_and_batch_norm_statistics(
    dtype: torch.dtype, tolerance: float, momentum: float
) -> None:
    teacher, student = pair(dtype)
    before, source = state(teacher), state(student)
    average = MovingAverage(teacher, student, momentum)
    average.update()
    averaged = [name for name, tensor in before.items() if tensor.is_floating_point()]
    assert "backbone.1.running_mean" in averaged
    assert "backbone.1.running_var" in averaged
    for name in averaged:
        expected = naive.averaged(before[name], source[name], momentum)
        torch.testing.assert_close(teacher.state_dict()[name].double(), expected, rtol=tolerance, atol=tolerance)


def test_update_copies_integer_buffers() -> None:
    teacher, student = pair()
    MovingAverage(teacher, student, 0.9).update()
    assert teacher.state_dict()["backbone.1.num_batches_tracked"] == 3


def test_update_leaves_the_student_and_its_own_head_alone() -> None:
    teacher, student = pair()
    before = state(student)
    MovingAverage(teacher, student, 0.9).update()
    assert "f.weight" not in teacher.state_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.state_dict().items())


def test_a_teacher_with_a_name_the_student_lacks_is_refused() -> None:
    teacher, student = pair()
    with pytest.raises(KeyError, match=r"f\."):
        MovingAverage(student, teacher, 0.9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9, 0.999, 1.0])
def test_a_teacher_equal_to_its_student_stays_exactly_so(dtype: torch.dtype, momentum: float) -> None:
    teacher, student = pair(dtype)
    teacher.load_state_dict({name: tensor for name, tensor in student.state_dict().items() if name[:2] != "f."})
    average = MovingAverage(teacher, student, momentum)
    for _ in range(50):
        average.update()
    assert all(torch.equal(tensor, student.state_dict()[name]) for name, tensor in teacher.state_dict().items())


def test_momentum_1_keeps_the_teacher_and_momentum_0_copies_the_student() -> None:
    teacher, student = pair()
    before = state(teacher)
    MovingAverage(teacher, student, 1.0).update()
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.named_parameters())
    MovingAverage(teacher, student, 0.0).update()
    assert all(torch.equal(tensor, student.state_dict()[name]) for name, tensor in teacher.state_dict().items())


def test_updates_follow_a_student_that_learns() -> None:
    teacher, student = pair()
    expected = state(teacher)["g.weight"]
    average = MovingAverage(teacher, student, 0.9)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        student(torch.randn(8, 6, dtype=torch.float64)).square().mean().backward()
        optimizer.step()
        average.update()
        expected = naive.averaged(expected, student.g.weight, 0.9)
    torch.testing.assert_close(teacher.g.weight.detach(), expected, rtol=1e-13, atol=1e-15)


def test_the_teacher_gets_no_gradient_from_the_update_or_the_loss() -> None:
    teacher, student = pair()
    MovingAverage(teacher, student, 0.9).update()
    x = torch.randn(8, 6, dtype=torch.float64)
    g = student(x)
    STMLLoss(k=3)(g[:, :2], g, teacher(x), torch.arange(8)).total.backward()
    assert student.g.weight.grad is not None
    assert all(parameter.is_leaf and parameter.grad is None for parameter in teacher.parameters())


@pytest.mark.parametrize("momentum", [-0.1, 1.1])
def test_momentum_outside_0_and_1_is_refused(momentum: float) -> None:
    with pytest.raises(ValueError, match=f"momentum must be within .0, 1., but is {momentum}"):
        MovingAverage(*pair(), momentum)
