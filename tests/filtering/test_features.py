"""Features: what the network's penultimate layer says, in bounded memory; weights from a file or from torchvision."""

import http.server
import threading
import urllib.request

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dolb import data, models
from dolb.filtering import features

RESNETS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def small(seed=0):
    return models.initialize("smallnet-4", 10, 1, 1, seed)


def extract(network, images, digits, **options):
    return features.extract(network, "smallnet-4", images, digits.mean, digits.std, progress=False, **options)


def test_features_are_what_the_classifier_of_the_network_sees(digits):
    network = small().eval()
    images = digits.test_images[:40]
    got = extract(network, images, digits)
    assert got.dtype == np.float32
    normalised = (torch.tensor(images).permute(0, 3, 1, 2) / 255 - digits.mean[0]) / digits.std[0]
    with torch.no_grad():
        torch.testing.assert_close(network.fc(torch.from_numpy(got)), network(normalised), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 7, 40, 1000])
def test_the_batch_size_does_not_matter(digits, batch_size):
    images = digits.test_images[:40]
    expected = extract(small(), images, digits)
    np.testing.assert_allclose(extract(small(), images, digits, batch_size=batch_size), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arch", RESNETS)
def test_every_resnet_has_features_of_its_width(arch):
    network = models.initialize(arch, 10, 3, 1, seed=0)
    images = np.random.default_rng(0).integers(0, 256, size=(2, 32, 32, 3), dtype=np.uint8)
    got = features.extract(network, arch, images, (0.5,) * 3, (0.25,) * 3, progress=False)
    assert got.shape == (2, models.require(arch).feature_width)
    assert np.isfinite(got).all()


def test_running_statistics_are_used_and_left_alone_and_modes_come_back(digits):
    network = small().train()
    network.stem.eval()
    modes = [module.training for module in network.modules()]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    extract(network, digits.test_images[:40], digits)
    assert [module.training for module in network.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((4, 8, 8, 1), dtype=np.float32), r"images are float32.*accepted: uint8 \(N, H, W, C\)"),
        (np.zeros((4, 8, 8, 3), dtype=np.uint8), "1 means, 1 deviations"),
    ],
)
def test_images_that_are_not_of_the_data_are_refused(digits, images, message):
    with pytest.raises(ValueError, match=message):
        extract(small(), images, digits)


# Checkpoints


def test_a_saved_network_comes_back_with_its_features(digits, tmp_path):
    network = models.initialize("smallnet-4", 10, 1, 4, seed=3)  # ghost batch norm evaluates as the ordinary one
    path = features.save_network(network, tmp_path / "made" / "net.pt")
    again = features.load_network("smallnet-4", 10, path, channels=1)
    images = digits.test_images[:20]
    np.testing.assert_array_equal(extract(again, images, digits), extract(network, images, digits))
    assert [p.name for p in path.parent.iterdir()] == ["net.pt"]


def refusal(path, arch="smallnet-4", num_classes=10, channels=1):
    with pytest.raises(features.CheckpointError) as caught:
        features.load_network(arch, num_classes, path, channels)
    return str(caught.value)


def test_weights_of_another_network_are_refused_in_one_line(tmp_path):
    path = features.save_network(small(), tmp_path / "net.pt")
    assert "it lacks blocks.1.bn1.bias and" in refusal(path, "smallnet-8")
    assert "it has in another shape fc.weight (10, 16), not (7, 16), and 1 more" in refusal(path, num_classes=7)
    assert "stem.0.weight (16, 1, 3, 3), not (16, 3, 3, 3)" in refusal(path, channels=3)
    deeper = features.save_network(models.build("smallnet-8", 10, 1), tmp_path / "deeper.pt")
    assert "it has too much blocks.1.bn1.bias and" in refusal(deeper)
    assert "\n" not in refusal(deeper)


def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"fc.weight": Payload()}, tmp_path / "evil.pt")
    assert "cannot be read as weights" in refusal(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


# torchvision's weights


def test_pretrained_weights_are_taken_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    made = models.build("resnet18", 1000)
    # The name under which torchvision publishes these weights; weights of our own stand in for their values.
    features.save_network(made, tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth")
    network = features.pretrained("resnet18")
    assert torch.equal(network.fc.weight, made.fc.weight)
    assert network.fc.out_features == 1000


def test_without_a_network_the_error_says_which_file_to_fetch_and_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the discard port: nothing answers there
    with pytest.raises(features.CheckpointError) as caught:
        features.pretrained("resnet18")
    assert "resnet18-f37072fd.pth" in str(caught.value)
    assert str(tmp_path / "hub" / "checkpoints") in str(caught.value)


@pytest.fixture
def refusing_proxy(monkeypatch):
    """Send every request through a proxy that refuses it, and return the list of what it was asked for."""
    asked = []

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self):
            asked.append(self.path)
            self.send_error(503)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.delenv("no_proxy", raising=False)
        urllib.request.install_opener(None)  # the one that is there keeps the proxy that was named when it was made
        yield asked
        urllib.request.install_opener(None)
        server.shutdown()


def test_weights_that_cannot_be_fetched_are_asked_for_once(tmp_path, monkeypatch, refusing_proxy):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    said = []
    for _ in range(3):
        with pytest.raises(features.CheckpointError) as caught:
            features.pretrained("resnet18")
        said.append(str(caught.value))
    assert len(refusing_proxy) == 1
    assert len(set(said)) == 1


def test_the_normalisation_is_the_one_torchvision_states():
    from torchvision.models import ResNet18_Weights

    images = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    stated = ResNet18_Weights.IMAGENET1K_V1.transforms(resize_size=224)(images)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (features.IMAGENET_MEAN, features.IMAGENET_STD))
    torch.testing.assert_close(stated, (images - mean) / std)
    assert F.mse_loss(stated, images) > 0
