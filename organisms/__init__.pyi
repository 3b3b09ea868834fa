from .spec import OrganismSpec as OrganismSpec
from .spec import load_spec as load_spec
from .truth import Truth as Truth
