from .pipeline.graph import Stage as Stage
from .report.results import RunResults as RunResults
from .run.config import RunConfig as RunConfig
from .run.config import load_config as load_config
from .run.inputs import RunInputs as RunInputs
