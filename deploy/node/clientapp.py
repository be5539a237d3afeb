"""Flower's ClientApp process, running the code that this hospital has installed and none that a server sends.

Flower hands every hospital a bundle with the code of a run and executes it: whoever controls the server, or reaches its
Control API, would run programs of his own beside the images, and no site policy could stop them. Here the bundle is
neither unpacked nor imported; of it counts, as run configuration, what the SuperNode has read as text.

Guarantee: bounded quantity, what code of a server a hospital executes: none. Neighbouring relation and unit: any.
Not guaranteed: that the installed code does what the coordinator expects; its version must be one that the two share,
    or messages are refused with a code.

Deviation: Flower offers no setting for it, so three names of its module are replaced; `tests/deploy/node` checks on
every version of Flower that they are the ones it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.clientapp import ClientApp
from flwr.supernode.cli.flwr_clientapp import flwr_clientapp
from flwr.supernode.runtime import run_clientapp

import client_app
from federation.errors import ConfigurationError


def main() -> None:
    """Answer one task with the installed ClientApp, as `flwr-clientapp` would with the bundle's."""
    pin_installed_code()
    flwr_clientapp()


def pin_installed_code() -> None:
    """Let Flower's ClientApp process of this interpreter run `client_app.main.app`, whatever bundle it receives.

    Raises:
        ConfigurationError: the installed Flower is another one than this was made for.
    """
    for name, ours in _REPLACED.items():
        if not hasattr(run_clientapp, name):
            raise ConfigurationError(f"Expected Flower 1.42, whose ClientApp process uses {name}; found another one.")
        setattr(run_clientapp, name, ours)


def _installed_folder(*_: object, **__: object) -> Path:
    return Path(client_app.__file__).parents[1]


def _load_installed(*_: object, **__: object) -> Callable[[str, str, str], ClientApp]:
    return lambda *_: _import_installed()


def _import_installed() -> ClientApp:
    """Return the app; it is imported as late as Flower would, once the node knows that this process lives."""
    from client_app.main import app

    return app


_REPLACED: dict[str, Callable[..., object]] = {
    "install_from_fab": _installed_folder,
    "get_project_dir": _installed_folder,
    "get_load_client_app_fn": _load_installed,
}

if __name__ == "__main__":
    main()
