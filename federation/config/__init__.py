"""The run configuration: frozen pydantic tables (`tables`), parsed once from Flower's flat dictionary (`parsing`)."""

from federation.config.aggregation_table import AggregationConfig
from federation.config.guard_table import GuardConfig
from federation.config.masking_table import MaskingConfig
from federation.config.parsing import describe_keys, flatten, nest, parse_configuration
from federation.config.privacy_table import PrivacyConfig
from federation.config.record_table import RecordConfig
from federation.config.run_table import RunConfig
from federation.config.tables import Configuration, DataConfig, ModelConfig, TrainingConfig

__all__ = [
    "AggregationConfig",
    "Configuration",
    "DataConfig",
    "GuardConfig",
    "MaskingConfig",
    "ModelConfig",
    "PrivacyConfig",
    "RecordConfig",
    "RunConfig",
    "TrainingConfig",
    "describe_keys",
    "flatten",
    "nest",
    "parse_configuration",
]
