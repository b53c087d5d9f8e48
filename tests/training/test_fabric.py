import importlib
import sys
from types import ModuleType

import pytest

from selftaught.training import fabric


def test_all_of_lightning_will_do_where_fabric_alone_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "lightning_fabric"}
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    for name, module in known.items():
        monkeypatch.setitem(sys.modules, name.replace("lightning_fabric", "lightning.fabric"), module)
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    expected = fabric.Fabric
    del fabric.Fabric
    assert importlib.reload(fabric).Fabric is expected
