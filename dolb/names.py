"""What configs name, known without torch, which takes seconds to import: networks, and ways to augment images."""

from dataclasses import dataclass

from dolb.config import require_known

AUGMENTS = ("none", "crop", "crop-flip")


@dataclass(frozen=True)
class Architecture:
    """A network that ``models`` builds by its name, and where its features are."""

    feature_width: int
    penultimate: str = "avgpool"
    of_volumes: bool = False  # it makes volumes again, and is trained by MSLE; others score classes, by cross-entropy


ARCHITECTURES: dict[str, Architecture] = {
    "smallnet-4": Architecture(16),
    "smallnet-8": Architecture(16),
    "smallnet-16": Architecture(16),
    "resnet18": Architecture(512),
    "resnet34": Architecture(512),
    "resnet50": Architecture(2048),
    "resnet101": Architecture(2048),
    "resnet152": Architecture(2048),
    # Many weights for little arithmetic, and no batch norm: the network for measuring communication.
    "vgg11": Architecture(4096, penultimate="classifier.4"),
    "volumenet": Architecture(64, penultimate="code", of_volumes=True),
}
# Networks that ``filtering.features`` has with their ImageNet weights, and that are not trained here.
WITH_WEIGHTS: dict[str, Architecture] = {"efficientnet-lite0": Architecture(1280, penultimate="network._avg_pooling")}


def names() -> tuple[str, ...]:
    """Return the names of networks that can be built and trained."""
    return tuple(ARCHITECTURES)


def require(name: str) -> Architecture:
    """Return the architecture of that name, or raise a ``ValueError`` that lists what there is."""
    if name not in WITH_WEIGHTS:
        require_known("network", name, names())
    return (ARCHITECTURES | WITH_WEIGHTS)[name]
