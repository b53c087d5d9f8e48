"""The parts of Lightning Fabric in use, from the package lightning-fabric or, if only that is installed, lightning."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING or find_spec("lightning_fabric"):
    from lightning_fabric import Fabric as Fabric
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment as TorchElasticEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy as DDPStrategy
else:
    from lightning.fabric import Fabric as Fabric
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment as TorchElasticEnvironment
    from lightning.fabric.strategies.ddp import DDPStrategy as DDPStrategy
