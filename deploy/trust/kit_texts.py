"""The words in a hospital's kit: the site policy to begin with, the page of instructions, and the settings of compose.

`$names` are filled in for each hospital.
"""

from __future__ import annotations

from string import Template

SITE_POLICY = Template("""\
# What $hospital demands before anything leaves it. This file is the hospital's own: read it, change it, sign it off.
# What is not allowed here is refused, whatever the server asks for. docs/site-policy.md explains every key.
hospital-id = "$hospital"
state-dir = "/var/lib/aegis"        # a volume that survives reinstallation: the ledger, and the log
keys-dir = "/var/lib/aegis-keys"    # another volume, backed up apart from the first

[data]
id = "images"                       # the data set's name in the ledger: keep it for as long as you keep the images
name = "folder"                     # what the files are: folder, npz, adult, or a MedMNIST name
root = "/data"                      # where the container sees them; .env says where they lie on this machine

[privacy]
mechanisms = ["dp-sgd"]             # how every update must be protected
max-epsilon = 8.0                   # over everything ever released from these images
max-delta = 1e-5                    # well below one over the number of images

[models]
allowed = ["cnn"]                   # networks that this hospital trains

[masking]
required = false                    # an empirical defence beside the mechanism, no differential privacy

[evaluation]
metrics = "noised"                  # accuracy leaves with noise, and is booked
""")

SETTINGS = Template("""\
# The image of this release, loaded from the offline bundle or pulled.
AEGIS_HOSPITAL_IMAGE=aegis-hospital:$version
# The folder with the images on this machine; the container sees it read-only.
AEGIS_DATA=./data
# With an NVIDIA card, and the image that was built for CUDA, take the mark off the next line.
# COMPOSE_FILE=compose.yaml:compose.gpu.yaml
""")

README = Template("""\
# $hospital in $consortium

This folder connects your hospital to `$server`, and to nothing else. It opens no port to the outside.
$key

1. Look at `site.toml`: it says what must be true before anything leaves. Put the folder of your images into `.env`.
2. Let the container read its files: `sudo chown -R 10001 .`
3. Hear in words what your policy allows: `docker compose run --rm hospital aegis policy check /etc/aegis/site.toml`
4. Check everything before the first contact: `docker compose run --rm hospital aegis doctor hospital --kit /etc/aegis`
5. Start: `docker compose up -d`
6. Look at http://127.0.0.1:8077. To stop at once: `docker compose down`

Nobody else may have this key. If the folder was lost or seen by others, tell the coordinator, who revokes the key.
""")

OWN_KEY = (
    "`node.key` is your hospital's private key: keep it here, readable by the container alone, and send it to nobody."
)
BROUGHT_KEY = "The private half of your key is not in it: put it here as `node.key`, readable by the container alone."
