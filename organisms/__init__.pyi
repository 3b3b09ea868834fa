from .mechanism import Truth as Truth
from .spec import OrganismSpec as OrganismSpec
from .spec import load_spec as load_spec
