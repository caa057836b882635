"""Features: what the network's penultimate layer says, in bounded memory; weights from a file or from torchvision."""

import numpy as np
import pytest
import torch

from dolb import models
from dolb.filtering import features


def small(seed=0):
    return models.initialize("smallnet-4", 10, 1, 1, seed)


def extract(network, images, digits):
    return features.extract(network, "smallnet-4", images, digits.mean, digits.std, progress=False)


def test_features_are_what_the_classifier_of_the_network_sees(digits):
    network = small().eval()
    images = digits.test_images[:40]
    got = extract(network, images, digits)
    assert got.dtype == np.float32
    normalised = (torch.tensor(images).permute(0, 3, 1, 2) / 255 - digits.mean[0]) / digits.std[0]
    with torch.no_grad():
        torch.testing.assert_close(network.fc(torch.from_numpy(got)), network(normalised), rtol=1e-4, atol=1e-5)


def test_the_batches_in_which_images_come_do_not_matter(digits):
    images = digits.train_images[:1100]  # three batches
    apart = [extract(small(), images[start : start + 100], digits) for start in range(0, 1100, 100)]
    np.testing.assert_allclose(extract(small(), images, digits), np.concatenate(apart), rtol=1e-4, atol=1e-5)


def test_running_statistics_are_used_and_left_alone(digits):
    network = small().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    extract(network, digits.test_images[:40], digits)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((4, 8, 8, 1), dtype=np.float32), r"images are float32.*accepted: uint8 \(N, H, W, C\)"),
        (np.zeros((4, 8, 8, 3), dtype=np.uint8), "1 means for images of shape"),
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


def test_weights_of_another_network_and_files_that_are_no_weights_are_refused(tmp_path):
    path = features.save_network(small(), tmp_path / "net.pt")
    with pytest.raises(features.CheckpointError, match=r"net\.pt cannot be read as weights of smallnet-8"):
        features.load_network("smallnet-8", 10, path, channels=1)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(features.CheckpointError, match=r"net\.pt cannot be read as weights of smallnet-4"):
        features.load_network("smallnet-4", 10, path, channels=1)

    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"fc.weight": Payload()}, tmp_path / "evil.pt")
    with pytest.raises(features.CheckpointError, match="cannot be read as weights"):
        features.load_network("smallnet-4", 10, tmp_path / "evil.pt", channels=1)
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


def test_an_efficientnet_brings_its_weights_and_sees_small_images_enlarged():
    network = features.pretrained("efficientnet-lite0")
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    scale = features.pretrained_scale("efficientnet-lite0")
    found = features.extract(network, "efficientnet-lite0", images, *scale, progress=False)
    assert found.shape == (2, models.require("efficientnet-lite0").feature_width)
    assert np.isfinite(found).all()
    enlarged = []
    network.network._conv_stem.register_forward_hook(lambda _m, got, _o: enlarged.append(got[0].shape[-2:]))
    network(torch.zeros(1, 3, 32, 32))
    assert enlarged == [(224, 224)]
    with pytest.raises(ValueError, match="come with weights"):
        models.build("efficientnet-lite0", 10)
