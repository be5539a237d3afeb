"""What must be known of each 2-D MedMNIST set at 28 pixels to read its file without the medmnist package.

The facts are those of `medmnist.INFO` 3.0.2 (https://github.com/MedMNIST/MedMNIST, Apache-2.0; arXiv 2110.14795). They
describe the files published at https://zenodo.org/records/10519652, whose images carry licences of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from federation.datasets.image_set import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class MedmnistFacts:
    """Facts of one official file.

    Attributes:
        md5: checksum of the NPZ file, in hexadecimal.
        class_names: one name per class or label.
        channels: 1 (grey) or 3 (RGB).
        task: what is predicted; the ordinal grades of RetinaMNIST are taken as classes.
    """

    md5: str
    class_names: tuple[str, ...]
    channels: int = 1
    task: Task = Task.MULTICLASS


def download_url(name: str) -> str:
    """Return where the official file of the set called `name` is published."""
    return f"https://zenodo.org/records/10519652/files/{name}.npz?download=1"


_ABDOMINAL_ORGANS = (
    "bladder",
    "femur-left",
    "femur-right",
    "heart",
    "kidney-left",
    "kidney-right",
    "liver",
    "lung-left",
    "lung-right",
    "pancreas",
    "spleen",
)

MEDMNIST_2D: dict[str, MedmnistFacts] = {
    "pathmnist": MedmnistFacts(
        md5="a8b06965200029087d5bd730944a56c1",
        class_names=(
            "adipose",
            "background",
            "debris",
            "lymphocytes",
            "mucus",
            "smooth muscle",
            "normal colon mucosa",
            "cancer-associated stroma",
            "colorectal adenocarcinoma epithelium",
        ),
        channels=3,
    ),
    "chestmnist": MedmnistFacts(
        md5="02c8a6516a18b556561a56cbdd36c4a8",
        class_names=(
            "atelectasis",
            "cardiomegaly",
            "effusion",
            "infiltration",
            "mass",
            "nodule",
            "pneumonia",
            "pneumothorax",
            "consolidation",
            "edema",
            "emphysema",
            "fibrosis",
            "pleural",
            "hernia",
        ),
        task=Task.MULTILABEL,
    ),
    "dermamnist": MedmnistFacts(
        md5="0744692d530f8e62ec473284d019b0c7",
        class_names=(
            "actinic keratoses and intraepithelial carcinoma",
            "basal cell carcinoma",
            "benign keratosis-like lesions",
            "dermatofibroma",
            "melanoma",
            "melanocytic nevi",
            "vascular lesions",
        ),
        channels=3,
    ),
    "octmnist": MedmnistFacts(
        md5="c68d92d5b585d8d81f7112f81e2d0842",
        class_names=(
            "choroidal neovascularization",
            "diabetic macular edema",
            "drusen",
            "normal",
        ),
    ),
    "pneumoniamnist": MedmnistFacts(
        md5="28209eda62fecd6e6a2d98b1501bb15f",
        class_names=(
            "normal",
            "pneumonia",
        ),
    ),
    "retinamnist": MedmnistFacts(
        md5="bd4c0672f1bba3e3a89f0e4e876791e4",
        class_names=(
            "0",
            "1",
            "2",
            "3",
            "4",
        ),
        channels=3,
    ),
    "breastmnist": MedmnistFacts(
        md5="750601b1f35ba3300ea97c75c52ff8f6",
        class_names=(
            "malignant",
            "normal, benign",
        ),
    ),
    "bloodmnist": MedmnistFacts(
        md5="7053d0359d879ad8a5505303e11de1dc",
        class_names=(
            "basophil",
            "eosinophil",
            "erythroblast",
            "immature granulocytes(myelocytes, metamyelocytes and promyelocytes)",
            "lymphocyte",
            "monocyte",
            "neutrophil",
            "platelet",
        ),
        channels=3,
    ),
    "tissuemnist": MedmnistFacts(
        md5="ebe78ee8b05294063de985d821c1c34b",
        class_names=(
            "Collecting Duct, Connecting Tubule",
            "Distal Convoluted Tubule",
            "Glomerular endothelial cells",
            "Interstitial endothelial cells",
            "Leukocytes",
            "Podocytes",
            "Proximal Tubule Segments",
            "Thick Ascending Limb",
        ),
    ),
    "organamnist": MedmnistFacts(
        md5="68e3f8846a6bd62f0c9bf841c0d9eacc",
        class_names=_ABDOMINAL_ORGANS,
    ),
    "organcmnist": MedmnistFacts(
        md5="b9ceb9546e10131b32923c5bbeaea2b1",
        class_names=_ABDOMINAL_ORGANS,
    ),
    "organsmnist": MedmnistFacts(
        md5="9ab87b696fb54e2a387ebe992d6ed5f1",
        class_names=_ABDOMINAL_ORGANS,
    ),
}
