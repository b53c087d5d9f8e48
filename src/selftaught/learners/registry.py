"""The methods by name: those of this package, those of other packages, and classes of the caller's own."""

from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from torch import Tensor

from selftaught.errors import UsageError, one_line, printable, unknown
from selftaught.learners.abe import ABE
from selftaught.learners.abier import ABIER
from selftaught.learners.deepcluster import DeepCluster
from selftaught.learners.exemplar import Exemplar
from selftaught.learners.hyperbolic import Hyperbolic
from selftaught.learners.isif import ISIF
from selftaught.learners.kmeans import ClusterSettings
from selftaught.learners.learner import Learner
from selftaught.learners.mean_shift import BYOL, MSF
from selftaught.learners.moco import MoCo
from selftaught.learners.mom import MOM
from selftaught.learners.nce import NCE
from selftaught.learners.slade import Slade
from selftaught.learners.stml import STML
from selftaught.learners.supervised import Supervised
from selftaught.learners.udml_ss import UDMLSS
from selftaught.networks import ENSEMBLE, Encoder
from selftaught.parallel import world
from selftaught.recipes import Settings, setting_kinds

GROUP = "selftaught.methods"
"""The group of entry points through which other packages add methods: a name and a subclass of Learner."""


@dataclass(frozen=True)
class MethodInfo:
    """A method's class, its name for readers, and whether it needs ``selftaught[research]``."""

    title: str
    learner: type[Learner]
    packages: bool = False

    @property
    def labeled(self) -> bool:
        """Whether it learns from labels."""
        return self.learner.labeled

    @property
    def ensemble(self) -> bool:
        """Whether its backbone must be an ensemble of learners."""
        return self.learner.settings_class.backbone.endswith(ENSEMBLE)

    @property
    def clusters(self) -> bool:
        """Whether it labels images by clusters, ``settings.clusters`` of them."""
        return issubclass(self.learner.settings_class, ClusterSettings)


METHODS = {
    "stml": MethodInfo("STML", STML),
    "moco": MethodInfo("MoCo", MoCo),
    "byol": MethodInfo("BYOL", BYOL),
    "msf": MethodInfo("MSF", MSF),
    "nce": MethodInfo("NCE", NCE),
    "isif": MethodInfo("ISIF", ISIF),
    "exemplar": MethodInfo("Examplar", Exemplar),  # as the paper spells it
    "mom": MethodInfo("MOM", MOM),
    "deepcluster": MethodInfo("DeepCluster", DeepCluster),
    "udml-ss": MethodInfo("UDML-SS", UDMLSS, packages=True),
    "hyperbolic": MethodInfo("Hyperbolic, after UHML", Hyperbolic),
    "contrastive": MethodInfo("Contrastive", Supervised, packages=True),
    "multi-similarity": MethodInfo("Multi-Similarity", Supervised, packages=True),
    "proxy-anchor": MethodInfo("Proxy-Anchor", Supervised, packages=True),
    "abier": MethodInfo("ABIER", ABIER),
    "abe": MethodInfo("ABE", ABE),
    "slade": MethodInfo("SLADE", Slade, packages=True),
}
"""The methods of this package."""

_OWN: dict[str, MethodInfo] = {}


def name_method(method: object) -> str:
    """The name of a method that is given as a name or a class; a class is registered under its name."""
    if isinstance(method, str):
        return method
    learner = _check_class(method, "method")
    name = f"{learner.__module__}.{learner.__qualname__}"
    _OWN[name] = MethodInfo(learner.__name__, learner)
    return name


def find_method(name: str) -> MethodInfo:
    """A method by name, of this package or another, or a class that :func:`name_method` has registered."""
    known = METHODS | _OWN
    if name in known:
        return known[name]
    others = {point.name: point for point in entry_points(group=GROUP)}
    if name in others:
        return _load(others[name])
    if "." in name:
        raise UsageError(f"the method {printable(name)} is a class: give it to train(method=…)")
    raise unknown("method", name, {*METHODS, *others})


def list_methods() -> dict[str, MethodInfo]:
    """All methods that are available by name; methods of other packages that cannot be loaded are left out."""
    found = METHODS | _OWN
    for point in entry_points(group=GROUP):
        with suppress(UsageError):
            found.setdefault(point.name, _load(point))
    return found


def has_setting(method: str, name: str) -> bool:
    """Whether a method has a setting of this name."""
    return name in setting_kinds(find_method(method).learner.settings_class)


def find_owners(name: str) -> list[str]:
    """The methods that have a setting of this name."""
    return [method for method in list_methods() if has_setting(method, name)]


def describe_settings() -> str:
    """The names of all settings, line by line: those of every method, then those of some, with the methods' names."""
    shared = [name for name in setting_kinds(Settings) if name not in ("recipe", "method")]
    all_names = [name for info in list_methods().values() for name in setting_kinds(info.learner.settings_class)]
    own: dict[str, list[str]] = {}
    for name in dict.fromkeys(all_names):
        if name not in setting_kinds(Settings):
            own.setdefault(", ".join(find_owners(name)), []).append(name)
    groups = {"every method": shared, **own}
    return "\n".join(f"of {methods}: {', '.join(names)}" for methods, names in groups.items())


def build_learner(encoder: Encoder, settings: Settings, images: int, classes: Tensor | None = None) -> Learner:
    """The learner of ``settings.method`` for ``images`` images; ``classes``: their classes, for methods with labels."""
    assert settings.batch_size is not None
    if settings.batch_size < world():
        raise UsageError(
            f"a batch of {settings.batch_size} images cannot be shared by {world()} processes: "
            "give a larger --batch-size, or start fewer"
        )
    method = find_method(settings.method)
    return method.learner(encoder, settings, classes if method.labeled else images)


def _load(point: EntryPoint) -> MethodInfo:
    try:
        found = point.load()
    except Exception as error:  # another package's code may raise anything
        reason = one_line(f"{type(error).__name__}: {error}")
        raise UsageError(f"the method {point.name!r}, {point.value}, cannot be loaded: {reason}") from None
    return MethodInfo(point.name, _check_class(found, f"the method {point.name!r}, {point.value},"))


def _check_class(found: object, what: str) -> type[Learner]:
    if not (isinstance(found, type) and issubclass(found, Learner)):
        raise UsageError(f"{what} must be a name or a subclass of selftaught.learners.Learner, not {printable(found)}")
    return found
